"""Data sets by user, of single examples or of health records: read from files, kept in stores, split."""

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.mimic_iv import mimic_iv
from sfumato.data.ehr.physionet2012 import physionet2012
from sfumato.data.ehr.read_events import ehr_from_events
from sfumato.data.ehr.read_meds import read_meds
from sfumato.data.ehr.read_tables import ehr_from_tables
from sfumato.data.ehr.write_meds import write_meds
from sfumato.data.ehr.write_tables import write_ehr_events, write_ehr_tables
from sfumato.data.examples.arrays import examples_from_arrays
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.from_users import examples_from_users
from sfumato.data.examples.schema import Schema, read_schema
from sfumato.data.examples.split import ExampleSplit, order_of_content, split_examples
from sfumato.data.examples.tokens import Tokenizer
from sfumato.data.load_examples import load_examples
from sfumato.data.load_users import load
from sfumato.data.ratings.examples import examples_from_ratings
from sfumato.data.ratings.read import ratings
from sfumato.data.ratings.user_column import with_user_column
from sfumato.data.readers.class_folder import class_folder
from sfumato.data.readers.digiface import digiface
from sfumato.data.readers.emnist import emnist_leaf, emnist_tff
from sfumato.data.readers.example_arrays import npy_examples, npz_examples
from sfumato.data.readers.idx import idx_images
from sfumato.data.readers.image_folder import image_folder
from sfumato.data.readers.omniglot import omniglot_folder, omniglot_npz
from sfumato.data.readers.part import MissingPart
from sfumato.data.readers.text import text_csv
from sfumato.data.readers.user_arrays import array_file
from sfumato.data.store.examples import open_examples, write_examples
from sfumato.data.store.pack import pack
from sfumato.data.store.save import write_store, write_users
from sfumato.data.store.users import open_store
from sfumato.data.tables.load import examples_from_table, from_table
from sfumato.data.tables.with_schema import table
from sfumato.data.text.encoding import Encoding
from sfumato.data.text.uncounted import UncountedTexts, uncounted_texts
from sfumato.data.text.users import text_users
from sfumato.data.transforms import to_tensor
from sfumato.data.unlabelled_examples import unlabelled
from sfumato.data.users.arrays import from_arrays
from sfumato.data.users.dataset import UserDataset
from sfumato.data.users.glyphs import glyphs
from sfumato.data.users.split import Split, split_groups, split_labels, split_users

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
