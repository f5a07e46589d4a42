"""Tar files as WebDataset writes them: found by a pattern, indexed once, read at any place."""
