"""Noise that is correlated over the rounds: how each kind is made from fresh noise and some vectors that are kept."""
