"""Baselines: recurrent GANs of three papers, and two controls that show what figures of an evaluation mean."""
