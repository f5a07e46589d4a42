"""Commands about embeddings: of every record, and who among them is alike."""
