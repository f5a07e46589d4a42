"""EHR-Safe: health records through one latent vector, and a Wasserstein GAN that draws new ones."""
