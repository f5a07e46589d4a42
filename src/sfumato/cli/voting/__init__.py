"""Commands of votes: asking agents, and counting for others."""
