"""Mechanisms on a random part of the records: Poisson, fixed size, at most so many, in turns."""
