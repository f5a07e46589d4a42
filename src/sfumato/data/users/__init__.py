"""Data sets divided by user, their readers and their splits."""
