"""A bidirectional LSTM on AG News, with and without layer norm, by DP-SGD. See README.md.

--quick takes one budget only.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
import word_vectors
from ag_news import TRAIN, ag_news, ag_news_by_vectors
from classifier_recipe import Method, main

from sfumato import models
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset

DELTA = 1e-5
QUICK = "--quick" in sys.argv
ALL_BUT_VECTORS = "(?!embedding).*"
VOCABULARY, LENGTH, WIDTH, HIDDEN = 4096, 24, 64, 32
LENGTH_BY_VECTORS = 40
VECTORS = word_vectors.of_tweets if QUICK else word_vectors.of_news  # the former need no other package
# Steps and learning rate for each epsilon: more noise, fewer and smaller steps. Chosen on 800 of the training examples.
STEPS = {7.0: (60, 8.0), 3.0: (60, 6.0), 1.0: (30, 4.0), 0.5: (20, 3.0)}
NOT_PRIVATE = DPSGD(
    steps=150,
    cohort=128,
    server={"name": "adam", "learning_rate": 0.01, "schedule": "cosine"},
    clipping=None,
    noise=0,
)
# The same with public word vectors that stay as they are, and 4,999 more texts. Chosen on 800 training texts that were
# held out for it.
BY_VECTORS = {
    "none": {7.0: (100, 8.0), 3.0: (100, 8.0), 1.0: (60, 8.0), 0.5: (40, 4.0), 0.1: (20, 4.0)},
    "layer": {7.0: (100, 4.0), 3.0: (100, 4.0), 1.0: (60, 4.0), 0.5: (40, 4.0), 0.1: (20, 4.0)},
}
PAPER: dict[str, dict[float | None, float]] = {  # Davody et al. 2020, by epsilon; None is without privacy
    "none": {None: 0.885, 7.0: 0.839, 3.0: 0.800, 1.0: 0.811, 0.5: 0.779},  # from the README of their code
    "layer": {None: 0.8818, 7.0: 0.8434, 3.0: 0.8251, 1.0: 0.8203, 0.5: 0.7916, 0.1: 0.5009},  # from the paper
}
HASHED = "AG News, 6,400 of the paper's 96,000 training texts"
FROM_VECTORS = "AG News, 11,399 training texts for the paper's 96,000"
Norm = Literal["none", "layer"]
TITLES: dict[Norm, str] = {"none": "BiLSTM", "layer": "BiLSTM, layer norm"}


def data(_: Path | None) -> tuple[ExampleDataset, ExampleDataset]:
    """6,400 texts to train on, 1,200 to test."""
    parts = ag_news(VOCABULARY, LENGTH)
    return parts.train, parts.test


def bilstm(norm: Norm) -> torch.nn.Module:
    """A fresh model; its words' vectors begin at the length that layer norm would give them."""
    model = models.bilstm_classifier(
        4,
        vocabulary_size=VOCABULARY,
        embedding_dim=WIDTH,
        hidden=HIDDEN,
        normalisation=norm,
    )
    if norm == "none":
        with torch.no_grad():
            model.embedding.weight *= WIDTH**0.5
    return model


def data_by_vectors(_: Path | None) -> tuple[ExampleDataset, ExampleDataset]:
    """11,399 texts to train on, and the same to test."""
    train, test, _vectors = ag_news_by_vectors(LENGTH_BY_VECTORS, VECTORS)
    return train, test


def bilstm_by_vectors(norm: Norm) -> torch.nn.Module:
    """A fresh model that starts from the public vectors."""
    vectors = torch.from_numpy(ag_news_by_vectors(LENGTH_BY_VECTORS, VECTORS)[2])
    model = models.bilstm_classifier(
        4, vocabulary_size=len(vectors), embedding_dim=vectors.shape[1], hidden=HIDDEN, normalisation=norm
    )
    with torch.no_grad():
        model.embedding.weight.copy_(vectors)
    return model


def methods() -> dict[str, Method]:
    """The rows."""
    rows = {}
    for norm, title in TITLES.items():
        row = partial(Method, dataset=HASHED, data=data, model=partial(bilstm, norm))
        rows[f"{title}, not private"] = row(plan=NOT_PRIVATE, paper=PAPER[norm][None])
        for epsilon, steps, rate, paper in _budgets(STEPS, norm):
            plan = DPSGD(steps=steps, cohort=512, server={"learning_rate": rate, "schedule": "cosine"}, clipping=1.0)
            plan = plan.calibrate(epsilon=epsilon, delta=DELTA, population=TRAIN)
            rows[f"{title}, ε {epsilon:g}"] = row(plan=plan, paper=paper)
    for norm, title in TITLES.items():
        row = partial(Method, dataset=FROM_VECTORS, data=data_by_vectors, model=partial(bilstm_by_vectors, norm))
        fixed = NOT_PRIVATE.replace(trainable=ALL_BUT_VECTORS, server={"learning_rate": 0.005})
        rows[f"{title}, word vectors, not private"] = row(plan=fixed, paper=PAPER[norm][None])
        for epsilon, steps, rate, paper in _budgets(BY_VECTORS[norm], norm):
            plan = DPSGD(
                steps=steps,
                cohort=512,
                server={"learning_rate": rate, "schedule": "cosine"},
                clipping=1.0,
                trainable=ALL_BUT_VECTORS,
            )
            rows[f"{title}, word vectors, ε {epsilon:g}"] = row(plan=plan, paper=paper, epsilon=epsilon)
    return rows


def _budgets(chosen: dict[float, tuple[int, float]], norm: str) -> list[tuple[float, int, float, float | None]]:
    """Epsilon, steps, learning rate and the paper's accuracy, if it has one, of each private row."""
    rows = [(epsilon, steps, rate, PAPER[norm].get(epsilon)) for epsilon, (steps, rate) in chosen.items()]
    return rows[:1] if QUICK else rows


if __name__ == "__main__":
    main(Path(__file__).resolve().parent, methods())
