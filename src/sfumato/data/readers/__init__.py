"""Readers of other people's files: folders of pictures, Omniglot, EMNIST, MNIST, arrays, texts, tables."""
