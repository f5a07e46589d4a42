"""Data sets by user, of single examples or of health records: read from files, kept in stores, split."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.data.draft import draft_schema
    from sfumato.data.drawn_glyphs import glyphs
    from sfumato.data.ehr.dataset import EHRDataset
    from sfumato.data.ehr.events import ehr_from_events
    from sfumato.data.ehr.meds import read_meds, write_meds
    from sfumato.data.ehr.mimic_iv import mimic_iv
    from sfumato.data.ehr.physionet2012 import physionet2012
    from sfumato.data.ehr.tables import ehr_from_tables
    from sfumato.data.ehr.write import write_ehr_events, write_ehr_tables
    from sfumato.data.examples import ExampleDataset, examples_from_arrays, examples_from_users
    from sfumato.data.files import MissingPart
    from sfumato.data.inputs import to_tensor
    from sfumato.data.open import (
        ExampleOptions,
        PictureOptions,
        RatingOptions,
        TableOptions,
        UserOptions,
        open_examples,
        open_users,
    )
    from sfumato.data.readers.criteo import criteo_schema
    from sfumato.data.readers.ratings import examples_from_ratings, with_user_column
    from sfumato.data.readers.text_users import UncountedTexts, uncounted_texts
    from sfumato.data.records import Reader, Records
    from sfumato.data.schema import Schema, read_schema
    from sfumato.data.split import (
        Split,
        order_of_content,
        split_examples,
        split_groups,
        split_labels,
        split_users,
    )
    from sfumato.data.store.build import write_store, write_users
    from sfumato.data.store.opened import write_examples
    from sfumato.data.text import Encoding, Tokenizer
    from sfumato.data.users import UserDataset, from_arrays
    from sfumato.data.zipf_clicks import ZipfClicks

__all__ = [
    "EHRDataset",
    "Encoding",
    "ExampleDataset",
    "ExampleOptions",
    "MissingPart",
    "PictureOptions",
    "RatingOptions",
    "Reader",
    "Records",
    "Schema",
    "Split",
    "TableOptions",
    "Tokenizer",
    "UncountedTexts",
    "UserDataset",
    "UserOptions",
    "ZipfClicks",
    "criteo_schema",
    "draft_schema",
    "ehr_from_events",
    "ehr_from_tables",
    "examples_from_arrays",
    "examples_from_ratings",
    "examples_from_users",
    "from_arrays",
    "glyphs",
    "mimic_iv",
    "open_examples",
    "open_users",
    "order_of_content",
    "physionet2012",
    "read_meds",
    "read_schema",
    "split_examples",
    "split_groups",
    "split_labels",
    "split_users",
    "to_tensor",
    "uncounted_texts",
    "with_user_column",
    "write_ehr_events",
    "write_ehr_tables",
    "write_examples",
    "write_meds",
    "write_store",
    "write_users",
]
__getattr__, __dir__ = lazily(__name__)
