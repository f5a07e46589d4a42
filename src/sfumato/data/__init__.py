"""Data sets divided by user, or of single examples: arrays, stores, folders of pictures, texts, tables and splits."""

from sfumato.data.emnist import emnist_leaf, emnist_tff
from sfumato.data.example_dataset import ExampleDataset
from sfumato.data.examples_arrays import MissingPart, examples_from_arrays, npy_examples, npz_examples
from sfumato.data.examples_folder import class_folder
from sfumato.data.examples_idx import idx_images
from sfumato.data.examples_load import load_examples
from sfumato.data.examples_schema import Schema, read_schema
from sfumato.data.examples_split import ExampleSplit, split_examples
from sfumato.data.examples_store import open_examples, write_examples
from sfumato.data.examples_table import table
from sfumato.data.examples_text import text_csv
from sfumato.data.examples_tokens import Tokenizer
from sfumato.data.examples_users import examples_from_users
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
    "ExampleDataset",
    "ExampleSplit",
    "MissingPart",
    "Schema",
    "Split",
    "Tokenizer",
    "UserDataset",
    "array_file",
    "class_folder",
    "digiface",
    "emnist_leaf",
    "emnist_tff",
    "examples_from_arrays",
    "examples_from_users",
    "from_arrays",
    "glyphs",
    "idx_images",
    "image_folder",
    "load",
    "load_examples",
    "npy_examples",
    "npz_examples",
    "omniglot_folder",
    "omniglot_npz",
    "open_examples",
    "open_store",
    "pack",
    "read_schema",
    "split_examples",
    "split_groups",
    "split_labels",
    "split_users",
    "table",
    "text_csv",
    "to_tensor",
    "write_examples",
    "write_store",
    "write_users",
]
