"""Two tables of private conversions: a census whose income stands for a sale, and a sample of Criteo's clicks.

Columns become numbers by bounds and lists that are public, so no method has an advantage by it: neither label privacy,
where inputs are public anyway, nor DP-SGD, which hides them too. Those of Adult are the census': it codes ages up to
90, hours up to 99 and sixteen degrees, and the table was extracted where ages are above 16 and hours above 0.
"""

import gzip
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato.data import ExampleDataset, Split, examples_from_arrays, open_examples, split_examples

ADULT, CRITEO = "Adult", "Criteo sample"
_LABEL = "no", "yes"

_ADULT: dict[str, Any] = {
    "age": {"kind": "numeric", "low": 17, "high": 90},
    "workclass": {"kind": "category", "buckets": 16},
    "fnlwgt": "drop",
    "education": "drop",  # education-num in words
    "education-num": {"kind": "numeric", "low": 1, "high": 16},
    "marital-status": {"kind": "category", "buckets": 16},
    "occupation": {"kind": "category", "buckets": 32},
    "relationship": {"kind": "category", "buckets": 16},
    "race": {"kind": "category", "buckets": 16},
    "sex": {"kind": "category", "values": ["Female", "Male"]},
    "capital-gain": {"kind": "numeric", "low": 0, "high": 100_000, "log": True},
    "capital-loss": {"kind": "numeric", "low": 0, "high": 10_000, "log": True},
    "hours-per-week": {"kind": "numeric", "low": 1, "high": 99},
    "native-country": {"kind": "category", "buckets": 64},
    "Salary": {"kind": "label", "values": ["<=50K", ">50K"]},
}

_CRITEO: dict[str, Any] = {
    "Id": "drop",
    "Label": {"kind": "label", "values": ["0", "1"]},
    **{f"I{i}": {"kind": "numeric", "low": -10, "high": 1e6, "log": True, "fill": 0} for i in range(1, 14)},
    **{f"C{i}": {"kind": "category", "buckets": 16} for i in range(1, 27)},
}


@cache
def parts(name: str) -> Split[ExampleDataset]:
    """A fifth to measure on, a tenth to choose settings by; neither is trained on."""
    return split_examples(_read(name), test=0.2, validation=0.1, seed=0)


def _read(name: str) -> ExampleDataset:
    """Numbers in [-1, 1], and a one for the value of each category."""
    if name == CRITEO:
        return _as_one(open_examples(cells.SHARED / "criteo_sample" / "train.tiny.csv", schema=_CRITEO))
    with TemporaryDirectory() as folder:  # the file has a blank behind each comma
        plain = Path(folder) / "adult.csv"
        plain.write_bytes(gzip.decompress((cells.SHARED / "adult.csv.gz").read_bytes()).replace(b", ", b","))
        return _as_one(open_examples(plain, schema=_ADULT))


def _as_one(data: ExampleDataset) -> ExampleDataset:
    (numbers, ids), labels = data.examples(np.arange(len(data)))
    ones = [np.eye(size, dtype=np.float32)[column] for size, column in zip(data.vocabulary_sizes, ids.T, strict=True)]
    inputs = np.concatenate([numbers, *ones], axis=1)
    return examples_from_arrays(inputs, labels, num_classes=2, label_names=_LABEL)
