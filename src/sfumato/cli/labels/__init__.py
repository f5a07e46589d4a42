"""Commands for private labels."""
