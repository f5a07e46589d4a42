"""Data sets divided by user: arrays, memory-mapped stores, folders of pictures, generators and splits."""

from sfumato.data.emnist import emnist_leaf, emnist_tff
from sfumato.data.glyphs import glyphs
from sfumato.data.image_folder import image_folder
from sfumato.data.load import load
from sfumato.data.pack import pack
from sfumato.data.readers import array_file, digiface, omniglot_folder, omniglot_npz
from sfumato.data.split import Split, split_groups, split_labels, split_users
from sfumato.data.store import open_store
from sfumato.data.store_save import write_store, write_users
from sfumato.data.transforms import to_tensor
from sfumato.data.user_dataset import UserDataset, from_arrays

__all__ = [
    "Split",
    "UserDataset",
    "array_file",
    "digiface",
    "emnist_leaf",
    "emnist_tff",
    "from_arrays",
    "glyphs",
    "image_folder",
    "load",
    "omniglot_folder",
    "omniglot_npz",
    "open_store",
    "pack",
    "split_groups",
    "split_labels",
    "split_users",
    "to_tensor",
    "write_store",
    "write_users",
]
