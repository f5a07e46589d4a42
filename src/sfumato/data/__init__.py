"""Data sets divided by user: arrays, memory-mapped stores, folders of pictures, generators and splits."""

from sfumato.data.glyphs import glyphs
from sfumato.data.transforms import to_tensor
from sfumato.data.user_dataset import UserDataset, from_arrays

__all__ = ["UserDataset", "from_arrays", "glyphs", "to_tensor"]
