"""Optimisers of the server, by name."""
