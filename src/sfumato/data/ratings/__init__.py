"""Ratings: which user gave which item which value."""
