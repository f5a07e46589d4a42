"""The layout of MEDS 0.4, the Medical Event Data Standard: which files a folder has, and their columns.

References:
    https://github.com/Medical-Event-Data-Standard/meds
"""

import pyarrow as pa

VERSION = "0.4.1"

DATA = "data"
DATASET = "metadata/dataset.json"
CODES = "metadata/codes.parquet"
SPLITS = "metadata/subject_splits.parquet"
SCHEMA = "metadata/sfumato_schema.yaml"
"""Ours, beside the standard's: with it the records are read back as they were."""

BIRTH = "MEDS_BIRTH"

SYNTHETIC = "synthetic"
"""A column of our own: whether an event was made by a model."""

EVENTS = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us")),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
        pa.field("text_value", pa.large_string()),
        pa.field(SYNTHETIC, pa.bool_(), nullable=False),
    ]
)

OF_CODES = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("description", pa.string()),
        pa.field("parent_codes", pa.list_(pa.string())),
    ]
)

OF_SPLITS = pa.schema(
    [pa.field("subject_id", pa.int64(), nullable=False), pa.field("split", pa.string(), nullable=False)]
)
