"""Noise that is shared between rounds: who may take part when, and by how much one unit then moves everything."""
