"""How an agent votes: with a model of its own, or by the nearest of its records."""
