"""Attacks on what was released, and measurements of what it is worth."""
