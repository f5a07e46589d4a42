"""How an agent comes to its votes: from its nearest records, or by a model that it trains."""
