"""Noise for a sum."""

from sfumato.mechanisms.gaussian import GaussianMechanism

__all__ = ["GaussianMechanism"]
