"""The private sum opened up: a model, an optimiser, a data set and a loop of one's own."""

from sfumato.central.custom_loop.loop import PrivateLoop

__all__ = ["PrivateLoop"]
