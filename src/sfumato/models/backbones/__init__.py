"""Networks that map pictures to embeddings."""
