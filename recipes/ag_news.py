"""News and their topics for recipes: 7,600 texts of four classes, with a split that never changes.

Words become ids by a public hash, so that no vocabulary is counted from the texts.

References:
    Zhang, Zhao, LeCun: Character-level Convolutional Networks for Text Classification (2015), section 4: the test part
    of AG News.
"""

from functools import cache

import numpy as np
from cells import SHARED

from sfumato._random import RandomSource
from sfumato.data import ExampleSplit, split_examples, text_csv

TEST = 1200
TRAIN = 6400
CLASSES = ("1", "2", "3", "4")  # world, sports, business, science and technology


@cache
def ag_news(vocabulary: int, length: int) -> ExampleSplit:
    """The texts, title and description joined.

    Args:
        vocabulary: ids that words are hashed into.
        length: ids a text.
    """
    texts = text_csv(
        SHARED / "ag_news_test.csv", vocabulary=vocabulary, length=length, label=0, label_values=CLASSES, header=False
    )
    keys = RandomSource.from_seed(0).stream("examples", "test").uniform(len(texts))
    return split_examples(texts, test=np.sort(np.argsort(keys, kind="stable")[:TEST]))
