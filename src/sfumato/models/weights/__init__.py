"""Weights on disk: published ones, a model's own, and those that start another model."""
