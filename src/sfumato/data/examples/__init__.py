"""Data sets of single examples, their readers and their splits."""
