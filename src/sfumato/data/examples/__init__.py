"""Data sets of single examples: arrays, splits, and what is public about their columns and classes."""
