"""News and their topics for recipes: texts of four classes, with a split that never changes.

Words become ids by a public hash, or by their places in a public list of word vectors, so that no vocabulary is counted
from the texts.

References:
    Zhang, Zhao, LeCun: Character-level Convolutional Networks for Text Classification (2015), section 4: the test part
    of AG News, and 5,000 texts of its training part.
"""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import word_vectors
from cells import SHARED

from sfumato._random import RandomSource
from sfumato.data import ExampleDataset, Split, examples_from_arrays, open_examples, split_examples

TEST = 1200
TRAIN = 6400
CLASSES = ("1", "2", "3", "4")  # world, sports, business, science and technology


@cache
def ag_news(vocabulary: int, length: int) -> Split[ExampleDataset]:
    """The texts, title and description joined.

    Args:
        vocabulary: ids that words are hashed into.
        length: ids a text.
    """
    return _divided(_test_file(vocabulary, length))


@cache
def ag_news_by_vectors(
    length: int, vectors_of: Callable[[], tuple[list[str], np.ndarray]] = word_vectors.of_tweets
) -> tuple[ExampleDataset, ExampleDataset, np.ndarray]:
    """The same texts and up to 5,000 more to train on; the test texts stay the same.

    Of the 5,000, those that read like a test text are left out.

    Args:
        length: ids a text.
        vectors_of: gives words and their vectors, one of `word_vectors`.

    Returns:
        the texts to train on, those to test on, and the vectors, float32 [ids, numbers]: 0 for padding, and for words
        that have none.
    """
    words, vectors = vectors_of()
    vectors = np.concatenate([np.zeros((2, vectors.shape[1]), np.float32), vectors])
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "words.txt"
        vocabulary.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        parts = _divided(_test_file(vocabulary, length))
        more = open_examples(
            SHARED / "ag_news_train_5000.csv",
            vocabulary=vocabulary,
            length=length,
            label=1,
            label_names=("0", "1", "2", "3"),
            header=False,
        )
    tested = {row.tobytes() for row in _ids_and_classes(parts.test)[0]}
    ids, classes = _ids_and_classes(more)
    fresh = [row.tobytes() not in tested for row in ids]
    first_ids, first_classes = _ids_and_classes(parts.train)
    both = examples_from_arrays(
        np.concatenate([first_ids, ids[fresh]]),
        np.concatenate([first_classes, classes[fresh]]),
        num_classes=len(CLASSES),
        vocabulary_sizes=parts.train.vocabulary_sizes,
        assumptions=parts.train.assumptions,
    )
    return both, parts.test, vectors


def _test_file(vocabulary: int | Path, length: int) -> ExampleDataset:
    return open_examples(
        SHARED / "ag_news_test.csv", vocabulary=vocabulary, length=length, label=0, label_names=CLASSES, header=False
    )


def _ids_and_classes(texts: ExampleDataset) -> tuple[np.ndarray, np.ndarray]:
    (ids,), classes = texts.examples(np.arange(len(texts)))
    assert classes is not None
    return ids, classes


def _divided(texts: ExampleDataset) -> Split[ExampleDataset]:
    keys = RandomSource.from_seed(0).stream("examples", "test").uniform(len(texts))
    return split_examples(texts, test=np.sort(np.argsort(keys, kind="stable")[:TEST]))
