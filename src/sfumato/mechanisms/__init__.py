"""Noise for sums, responses for labels, and what they cost; rooms of their own, as some need no torch."""
