"""Data sets by user, of single examples or of health records: read from files, kept in stores, split."""

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import ehr_from_events
from sfumato.data.ehr.meds import read_meds, write_meds
from sfumato.data.ehr.mimic_iv import mimic_iv
from sfumato.data.ehr.physionet2012 import physionet2012
from sfumato.data.ehr.tables import ehr_from_tables
from sfumato.data.ehr.write import write_ehr_events, write_ehr_tables
from sfumato.data.examples import ExampleDataset, examples_from_arrays, examples_from_users
from sfumato.data.files import MissingPart
from sfumato.data.gather import examples_from_table, from_table
from sfumato.data.glyphs import glyphs
from sfumato.data.open import load, load_examples, unlabelled
from sfumato.data.ratings import examples_from_ratings, ratings, with_user_column
from sfumato.data.readers.arrays import array_file, idx_images, npy_examples, npz_examples
from sfumato.data.readers.emnist import emnist_leaf, emnist_tff
from sfumato.data.readers.folders import class_folder, digiface, image_folder
from sfumato.data.readers.omniglot import omniglot_folder, omniglot_npz
from sfumato.data.readers.schema_tables import table
from sfumato.data.readers.texts import text_csv
from sfumato.data.schema import Schema, read_schema
from sfumato.data.split import (
    ExampleSplit,
    Split,
    order_of_content,
    split_examples,
    split_groups,
    split_labels,
    split_users,
)
from sfumato.data.store.build import pack, write_store, write_users
from sfumato.data.store.opened import open_examples, open_store, write_examples
from sfumato.data.text import Encoding, Tokenizer
from sfumato.data.text_users import UncountedTexts, text_users, uncounted_texts
from sfumato.data.transforms import to_tensor
from sfumato.data.users import UserDataset, from_arrays

__all__ = [
    "EHRDataset",
    "Encoding",
    "ExampleDataset",
    "ExampleSplit",
    "MissingPart",
    "Schema",
    "Split",
    "Tokenizer",
    "UncountedTexts",
    "UserDataset",
    "array_file",
    "class_folder",
    "digiface",
    "ehr_from_events",
    "ehr_from_tables",
    "emnist_leaf",
    "emnist_tff",
    "examples_from_arrays",
    "examples_from_ratings",
    "examples_from_table",
    "examples_from_users",
    "from_arrays",
    "from_table",
    "glyphs",
    "idx_images",
    "image_folder",
    "load",
    "load_examples",
    "mimic_iv",
    "npy_examples",
    "npz_examples",
    "omniglot_folder",
    "omniglot_npz",
    "open_examples",
    "open_store",
    "order_of_content",
    "pack",
    "physionet2012",
    "ratings",
    "read_meds",
    "read_schema",
    "split_examples",
    "split_groups",
    "split_labels",
    "split_users",
    "table",
    "text_csv",
    "text_users",
    "to_tensor",
    "uncounted_texts",
    "unlabelled",
    "with_user_column",
    "write_ehr_events",
    "write_ehr_tables",
    "write_examples",
    "write_meds",
    "write_store",
    "write_users",
]
