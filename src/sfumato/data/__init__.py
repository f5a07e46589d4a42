"""Data sets divided by user: arrays, memory-mapped stores, folders of pictures, generators and splits."""

from sfumato.data.glyphs import glyphs
from sfumato.data.image_folder import image_folder
from sfumato.data.pack import pack
from sfumato.data.store import open_store
from sfumato.data.store_writer import write_store
from sfumato.data.transforms import to_tensor
from sfumato.data.user_dataset import UserDataset, from_arrays

__all__ = [
    "UserDataset",
    "from_arrays",
    "glyphs",
    "image_folder",
    "open_store",
    "pack",
    "to_tensor",
    "write_store",
]
