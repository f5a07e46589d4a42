"""Networks that tell the next token of a sequence at each of its places, by name."""
