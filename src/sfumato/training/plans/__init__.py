"""What a plan says: rounds, participants, bound, noise and budget."""
