"""The noise, and the event that it is accounted as."""

from sfumato.mechanisms.independent import GaussianMechanism

__all__ = ["GaussianMechanism"]
