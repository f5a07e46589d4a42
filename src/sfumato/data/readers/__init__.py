"""Readers of others' files: pictures, Omniglot, EMNIST, MNIST, arrays, texts, tables."""
