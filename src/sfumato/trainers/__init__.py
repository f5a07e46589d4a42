"""The private sum in the training loops of other libraries: Lightning.

The library has to be installed, and importing sfumato does not import it.
"""

from sfumato.trainers.lightning import PrivateModule

__all__ = ["PrivateModule"]
