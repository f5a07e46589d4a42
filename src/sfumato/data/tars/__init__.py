"""Tar files as WebDataset writes them: found by a pattern, indexed once, and read at any place without unpacking."""
