"""What synthetic records are worth: classifiers of the outcome, trained on them and tested on real ones."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.audit.ehr.flat import Flat, flatten
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.metrics.classification import roc_auc
from sfumato.metrics.tabular import Interval, bootstrap, columns_with_values

# A flat table as numbers for classifiers: its numbers as they are, and a column of 0 and 1 for each common category.
#
# The categories that get a column are the twenty most frequent ones of a reference; the others share none, which a
# column of ten thousand categories would drown in. What is missing stays NaN among the numbers, and is −1 among
# categories, so that it has a column where it is common.


_MOST = 20


class Features:
    """The columns that a reference decides.

    Args:
        reference: the table to learn from.
    """

    def __init__(self, reference: Flat) -> None:
        self._frequent: list[np.ndarray] = []
        for codes in reference.codes.T:
            found, counts = np.unique(codes, return_counts=True)
            self._frequent.append(np.sort(found[np.argsort(-counts, kind="stable")[:_MOST]]))

    def of(self, flat: Flat) -> np.ndarray:
        """Float64 [n, features]; NaN = missing number."""
        hot = [codes[:, None] == frequent for codes, frequent in zip(flat.codes.T, self._frequent, strict=True)]
        return np.concatenate([flat.numbers, *hot], 1, dtype=np.float64)


# A small recurrent classifier of patients: a GRU over their visits, with masks of what is missing.
#
# A visit is its standardised numbers (0 where missing), which of them are there, its common categories as 0 and 1, and
# the logarithm of one plus the time since the visit before. The static columns join after the last visit. A quarter of
# the training patients is kept aside and decides when to stop. Guarantees the same scores for the same seed on one
# machine, and leaves torch's own generator as it was.


_WIDTH, _BATCH, _RATE = 64, 64, 3e-3
_EPOCHS, _PATIENCE = 40, 6
_MOST_VISITS = 200  # of a patient: the last ones
_MOST_CATEGORIES = 20
_LARGEST = 6.0  # standard deviations; what is further out would drown the rest


class GruClassifier:
    """The chance of the outcome, learned from patients.

    Args:
        hidden: static columns that it must not see, the outcome above all.
        seed: of weights and of the order of the batches.
    """

    def __init__(self, hidden: tuple[str, ...], seed: int) -> None:
        self._hidden, self._seed = hidden, seed

    def fit(self, records: EHRDataset, outcome: np.ndarray) -> "GruClassifier":
        """Learn from patients with 0 and 1 as the outcome, both of them present."""
        self._learn_scales(records)
        data = self._tensors(records)
        labels = torch.from_numpy(np.asarray(outcome, np.float32))
        generator = torch.Generator().manual_seed(self._seed)
        aside = torch.zeros(len(labels), dtype=torch.bool)
        for value in (0, 1):  # a quarter of either outcome
            rows = torch.nonzero(labels == value)[:, 0]
            aside[rows[torch.randperm(len(rows), generator=generator)[: len(rows) // 4]]] = True
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            self._model = _Net(data[0].shape[2], data[2].shape[1])
        if not aside.any():
            aside = ~aside  # too few to keep any: they judge themselves
            rows = torch.arange(len(labels))
        else:
            rows = torch.nonzero(~aside)[:, 0]
        self._descend(data, labels, rows, torch.nonzero(aside)[:, 0], generator)
        return self

    def scores(self, records: EHRDataset) -> np.ndarray:
        """The logit of the outcome for each patient, float64 [n]."""
        return self._logits(self._tensors(records), torch.arange(len(records))).double().numpy()

    def _descend(
        self,
        data: tuple[Tensor, Tensor, Tensor],
        labels: Tensor,
        rows: Tensor,
        aside: Tensor,
        generator: torch.Generator,
    ) -> None:
        """Adam until the loss on the validation patients falls no more."""
        optimizer = torch.optim.Adam(self._model.parameters(), lr=_RATE, weight_decay=1e-5)
        loss_of = nn.BCEWithLogitsLoss()
        best, best_loss, waited = copy.deepcopy(self._model.state_dict()), np.inf, 0
        for _ in range(_EPOCHS):
            for batch in rows[torch.randperm(len(rows), generator=generator)].split(_BATCH):
                optimizer.zero_grad()
                loss_of(self._model(*(each[batch] for each in data)), labels[batch]).backward()
                nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
                optimizer.step()
            loss = float(loss_of(self._logits(data, aside), labels[aside]))
            if loss < best_loss:
                best, best_loss, waited = copy.deepcopy(self._model.state_dict()), loss, 0
            else:
                waited += 1
                if waited == _PATIENCE:
                    break
        self._model.load_state_dict(best)

    def _logits(self, data: tuple[Tensor, Tensor, Tensor], rows: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._model(*(each[batch] for each in data)) for batch in rows.split(512)])

    def _learn_scales(self, records: EHRDataset) -> None:
        self._numbers = _Standard(records.numbers)
        self._frequent = []
        for codes in records.codes.T:
            found, counts = np.unique(codes[codes >= 0], return_counts=True)
            self._frequent.append(np.sort(found[np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]]))
        static = flatten(records).without(*self._hidden).where(lambda each: each.part == "static")
        self._features = Features(static)
        self._static = _Standard(self._features.of(static))

    def _tensors(self, records: EHRDataset) -> tuple[Tensor, Tensor, Tensor]:
        """Visits [n, most visits, width], how many there are [n], and static features [n, s]; float32 but for those."""
        gaps = np.diff(records.times, prepend=0.0)
        gaps[records.offsets[:-1]] = 0.0
        hot = [codes[:, None] == frequent for codes, frequent in zip(records.codes.T, self._frequent, strict=True)]
        visits = np.concatenate([np.log1p(gaps)[:, None], self._numbers.of(records.numbers), *hot], 1, dtype=np.float32)
        lengths = np.minimum(records.lengths, _MOST_VISITS)
        padded = np.zeros((len(records), int(lengths.max()), visits.shape[1]), np.float32)
        filled = np.arange(padded.shape[1]) < lengths[:, None]
        first = records.offsets[1:] - lengths
        padded[filled] = visits[(first[:, None] + np.arange(padded.shape[1]))[filled]]
        static = flatten(records).without(*self._hidden).where(lambda each: each.part == "static")
        features = self._static.of(self._features.of(static)).astype(np.float32)
        return torch.from_numpy(padded), torch.from_numpy(lengths), torch.from_numpy(features)


class _Standard:
    """Columns by their mean and standard deviation, and whether they are there."""

    def __init__(self, values: np.ndarray) -> None:
        there = ~np.isnan(values)
        count = np.maximum(there.sum(0), 1)
        self._mean = np.where(there, values, 0.0).sum(0) / count
        std = np.sqrt((np.where(there, values - self._mean, 0.0) ** 2).sum(0) / count)
        self._std = np.where(std > 0, std, 1.0)

    def of(self, values: np.ndarray) -> np.ndarray:
        there = ~np.isnan(values)
        scaled = np.clip((values - self._mean) / self._std, -_LARGEST, _LARGEST)
        return np.concatenate([np.where(there, scaled, 0.0), there], 1)


class _Net(nn.Module):
    def __init__(self, width: int, static: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(width, _WIDTH, batch_first=True)
        self.head = nn.Sequential(nn.Linear(_WIDTH + static, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1))

    def forward(self, visits: Tensor, lengths: Tensor, static: Tensor) -> Tensor:
        """Logits [n]."""
        packed = nn.utils.rnn.pack_padded_sequence(visits, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.recurrent(packed)
        return self.head(torch.cat([last[-1], static], 1))[:, 0]


# The four kinds of classifiers that say what records are worth: three of the flat table, and a GRU of the visits.
#
# Each is trained with the settings that stand here, chosen once and not on anybody's data. What is missing is a value
# of its own for the trees; for the others it is the column's median, with a column that says so.


MODELS = ("gradient-boosted trees", "random forest", "logistic regression", "GRU")


def scores_of_test(model: str, records: EHRDataset, outcome: np.ndarray, test: EHRDataset, seed: int) -> np.ndarray:
    """Train one of `MODELS`, and score test patients.

    Args:
        model: its name.
        records: to train on.
        outcome: 0 or 1 of each of them, both of them present.
        test: whom to score; the schema's outcome is hidden from the classifier.
        seed: of what it draws.

    Returns:
        float64 [test patients]; higher means that the outcome is more likely.
    """
    hidden = (records.schema.outcome,) if records.schema.outcome else ()
    if model == "GRU":
        return GruClassifier(hidden, seed).fit(records, outcome).scores(test)
    flat, other = (flatten(side).without(*hidden) for side in (records, test))
    features = Features(flat)
    known, asked = features.of(flat), features.of(other)
    with_values = columns_with_values(known)  # always some: the number of visits is never missing
    fitted = _tabular(model, len(flat), seed).fit(known[:, with_values], outcome)
    return np.asarray(fitted.predict_proba(asked[:, with_values])[:, 1], np.float64)


def _tabular(model: str, patients: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # late: a second to import
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import QuantileTransformer

    if model == "gradient-boosted trees":
        return HistGradientBoostingClassifier(learning_rate=0.05, max_leaf_nodes=15, random_state=seed)
    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    if model == "random forest":
        return make_pipeline(filled, RandomForestClassifier(200, min_samples_leaf=3, random_state=seed))
    ranks = QuantileTransformer(n_quantiles=min(100, patients), output_distribution="normal", random_state=seed)
    return make_pipeline(filled, ranks, LogisticRegression(C=0.1, max_iter=1000))


# What synthetic records are worth: classifiers of the outcome, trained on them and tested on real patients (TSTR).
#
# Compared with the same classifiers trained on the real records (TRTR) and tested on the same held-out patients. Four
# kinds: gradient-boosted trees, a random forest, logistic regression (all on the flat table), and a GRU over the
# visits. Patients without an outcome are left out. Intervals come from drawing the test patients again, the same ones
# for both sides; the classifiers stay as they are.
#
# References:
#     Esteban, Hyland, Rätsch: Real-valued (medical) time series generation with recurrent conditional GANs. 2017
#     (train on synthetic, test on real).


_REPLICATES = 200


@dataclass(frozen=True, kw_only=True)
class ModelUtility:
    """One kind of classifier; AUC on real held-out patients.

    Attributes:
        model: its name.
        real: trained on real records (TRTR).
        synthetic: trained on synthetic ones (TSTR); None where these have one outcome only.
        baseline: trained on the records of a baseline; None without them, or where these have one outcome only.
    """

    model: str
    real: Interval
    synthetic: Interval | None
    baseline: Interval | None


@dataclass(frozen=True, kw_only=True)
class Utility:
    """All kinds of classifiers.

    Attributes:
        outcome: the column that is predicted, and the category that counts as the event.
        models: in the order of `MODELS`.
        gap: AUC of the best model trained on real records − that of the best one trained on synthetic records, each
            the best of its side on the test; None where the synthetic records have one outcome only.
        gain: AUC of the best model trained on synthetic records − that of the best one trained on the baseline's; None
            without them, or where either has one outcome only.
        test_patients, events: held-out patients with an outcome, and those of them with the event.
        warnings: sentences about what could not be measured as it should.
    """

    outcome: tuple[str, str]
    models: tuple[ModelUtility, ...]
    gap: Interval | None
    gain: Interval | None
    test_patients: int
    events: int
    warnings: tuple[str, ...] = ()


def utility(
    real: EHRDataset,
    holdout: EHRDataset,
    synthetic: EHRDataset,
    seed: int,
    *,
    baseline: EHRDataset | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Utility | None:
    """TSTR against TRTR; None where the schema names no outcome.

    Args:
        real: what the generator was trained on.
        holdout: real patients that it has not seen, to test on.
        synthetic: what it made.
        seed: of the classifiers and of the intervals.
        baseline: as many patients by a trivial generator, for one more column.
        progress: called with (done, total) classifiers.

    Raises:
        InputError: real records, or those held out, have one outcome only.
    """
    schema = real.schema
    if schema.outcome is None:
        return None
    trained, test, made = (_with_outcome(side) for side in (real, holdout, synthetic))
    trivial = None if baseline is None else _with_outcome(baseline)
    for name, side in (("real", trained), ("held-out", test)):
        if not side.both:
            raise InputError(f"all {name} records have one {schema.outcome!r}; give more, or a schema without outcome")
    warnings = [
        f"{side.left_out} {name} records have no {schema.outcome!r} and are left out here."
        for name, side in (("real", trained), ("held-out", test), ("synthetic", made))
        if side.left_out
    ]
    if not made.both:
        warnings.append(
            f"The synthetic records do not have both categories of {schema.outcome!r}: nothing about it can be learned "
            "from them, and there is no AUC of training on them."
        )
    teachers = [trained, *(side for side in (made, trivial) if side is not None and side.both)]
    scores: list[list[np.ndarray]] = []
    for teacher in teachers:
        scores.append([])
        for model in MODELS:
            scores[-1].append(scores_of_test(model, teacher.records, teacher.outcome, test.records, seed))
            if progress:
                progress(sum(map(len, scores)), len(teachers) * len(MODELS))
    each = [[_interval(test.outcome, seed, [one]) for one in side] for side in scores]
    of_made, of_trivial = (teachers.index(side) if side in teachers else None for side in (made, trivial))
    return Utility(
        outcome=(
            schema.outcome,
            next(column.categories[1] for column in schema.static if column.name == schema.outcome),
        ),
        models=tuple(
            ModelUtility(
                model=model,
                real=each[0][place],
                synthetic=None if of_made is None else each[of_made][place],
                baseline=None if of_trivial is None else each[of_trivial][place],
            )
            for place, model in enumerate(MODELS)
        ),
        gap=None if of_made is None else _interval(test.outcome, seed, scores[0], scores[of_made]),
        gain=(
            None
            if of_made is None or of_trivial is None
            else _interval(test.outcome, seed, scores[of_made], scores[of_trivial])
        ),
        test_patients=len(test.outcome),
        events=int(test.outcome.sum()),
        warnings=tuple(warnings),
    )


@dataclass(frozen=True, eq=False)
class _Side:
    records: EHRDataset
    outcome: np.ndarray
    left_out: int

    @property
    def both(self) -> bool:
        return 0 < self.outcome.sum() < len(self.outcome)


def _with_outcome(records: EHRDataset) -> _Side:
    """The patients whose outcome is known; all of them, without outcomes, where none is."""
    place = [column.name for column in records.schema.static_categorical].index(str(records.schema.outcome))
    known = np.flatnonzero(records.static_codes[:, place] >= 0)
    left_out = len(records) - len(known)
    if not len(known):
        return _Side(records, np.empty(0, np.int64), left_out)
    records = records.take(known) if left_out else records
    return _Side(records, records.outcome(), left_out)


def _interval(
    truth: np.ndarray, seed: int, scores: list[np.ndarray], others: list[np.ndarray] | None = None
) -> Interval:
    """Of the best AUC of some scores, less the best one of others; with one seed, of the same test patients."""
    outcomes = [np.flatnonzero(truth == value) for value in (0, 1)]

    def best(*rows: np.ndarray) -> float:
        drawn = np.concatenate([side[row] for side, row in zip(outcomes, rows, strict=True)])
        first = max(roc_auc(each[drawn], truth[drawn]) for each in scores)
        return first - max(roc_auc(each[drawn], truth[drawn]) for each in others) if others else first

    return bootstrap(best, [len(side) for side in outcomes], np.random.default_rng(seed), replicates=_REPLICATES)
