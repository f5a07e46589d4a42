"""Noise shared between rounds: who may take part when, and how far one unit then moves everything."""
