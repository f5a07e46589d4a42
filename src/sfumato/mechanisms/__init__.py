"""Noise for a sum."""

from sfumato.mechanisms.independent import GaussianMechanism

__all__ = ["GaussianMechanism"]
