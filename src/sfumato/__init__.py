"""sfumato: train models on records that belong to people, and say exactly what that cost each of them."""

__version__ = "0.1.0"
