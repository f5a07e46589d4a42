"""EHR-Safe with a guarantee: noisy tables, then an autoencoder and a critic whose gradients are clipped and noised."""
