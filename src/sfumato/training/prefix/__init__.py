"""The frozen first layers of a model, which a record goes through once and not in every round."""
