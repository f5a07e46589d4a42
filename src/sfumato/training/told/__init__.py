"""What a run tells while it goes on: progress, cost so far, trouble; callbacks."""
