"""Options of plans whose labels are randomised before anything is trained, and what they train on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from sfumato._check import InputError
from sfumato.cli.console import bar
from sfumato.cli.options.classifiers import ClassifierOptions
from sfumato.cli.options.examples import ExampleParts, RatedDataOptions
from sfumato.cli.options.public_features import public_features
from sfumato.cli.parse import CommonOptions
from sfumato.data import to_tensor
from sfumato.data.singles import refuse_not_finite
from sfumato.labels.clusters import feature_rows
from sfumato.models import features_of

P = TypeVar("P")

_AT_ONCE = 256  # examples whose features are computed together


@dataclass(frozen=True, kw_only=True)
class LabelRun(CommonOptions):
    """The run.

    Attributes:
        out: folder of the run; it must be new or empty. Without it, the next free one of runs/COMMAND-1, -2, …
        resume: go on with the run in this folder; everything else is read from its plan.json.
        dry_run: print the plan and its statement; no label is drawn, and nothing is trained.
        threads: CPU threads; None leaves it to torch.
        device: where to train: cpu, cuda, or cuda:1.
    """

    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    threads: int | None = None
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class LabelModel(ClassifierOptions):
    """The model, and the features that clusters are found by.

    Attributes:
        features: with --clusters: what tells which rows are alike; the model itself sees the inputs. pixels (the
            inputs as they are), hog or scattering; squeezenet with --feature-weights; package.module:factory, an
            importable class or function without arguments that gives a frozen torch module; or a .npy of numbers with
            a row for each row of --data. They must be public, and not made from the labels.
        feature_weights: public weights of the features' network.
        model_seed: public; the first weights follow from it.
    """

    features: str | None = None
    feature_weights: Path | None = None
    model_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class LabelTraining(Generic[P]):
    """Options of a plan that randomises labels.

    Attributes:
        run: Where the run goes, and how it is watched.
        data: Public inputs with private labels, and the rows that are kept out to test on, whose labels are not hidden.
        model: The model.
        plan: What one label costs, and how the model learns from the reports.
    """

    run: LabelRun
    data: RatedDataOptions
    model: LabelModel
    plan: P


def sources(kind: type[Any]) -> Any:
    """The class of all options for a plan."""
    return LabelTraining[kind]  # type: ignore[valid-type]


def features_for(options: LabelModel, parts: ExampleParts) -> np.ndarray | None:
    """Public features of what is trained on, float [rows, d]; None where nobody chose any.

    Raises:
        InputError: they are unknown, of other rows, or not finite.
    """
    name = options.features
    if name is None:
        if options.feature_weights is not None:
            raise InputError("--feature-weights is for --features squeezenet; give it, or leave both out")
        return None
    if name.endswith(".npy"):
        return _read(Path(name), parts)
    how = public_features(name, options.feature_weights, options.model_seed, flag="--feature-weights")
    rows, found = len(parts.train), []
    with bar("features") as progress:
        for (inputs, *more), _ in parts.train.batches(_AT_ONCE):
            if more:
                raise InputError(f"--features {name} are of examples with one input, got {1 + len(more)}; give a .npy")
            found.append(features_of(how, to_tensor(inputs), batch_size=_AT_ONCE))
            progress(_AT_ONCE * len(found), rows)
    return np.concatenate(found)


def _read(path: Path, parts: ExampleParts) -> np.ndarray:
    """The rows of a file that belong to what is trained on."""
    rows = feature_rows(path)
    if len(rows) != parts.count:
        raise InputError(
            f"{path} must have a row for each of the {parts.count:,} rows of --data, in their order, got {len(rows):,}"
        )
    found = np.asarray(rows[parts.places], np.float32)
    refuse_not_finite(found, str(path))
    return found
