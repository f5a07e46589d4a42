"""Recurrences: noise that is correlated over rounds, made from fresh noise and kept vectors."""
