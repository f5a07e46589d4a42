"""Layers, initial weights and fixed features that several networks share."""
