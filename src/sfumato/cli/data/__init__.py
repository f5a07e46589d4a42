"""`sfumato data`: what writes data sets."""
