"""Moments of privacy losses: the quantity under every Rényi bound."""
