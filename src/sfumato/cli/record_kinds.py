"""The kinds of records that a training command can have: their options, their reader, and the models for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from sfumato.cli.options.backbones import build, embedding_dim_of
from sfumato.cli.options.classifiers import about_classifier, build_classifier
from sfumato.cli.options.examples import ExampleParts, read_example_parts
from sfumato.cli.options.language_models import build_language_model
from sfumato.cli.options.training import ExampleTraining, PrivateTraining, RunOptions, Training
from sfumato.cli.options.users import read_parts
from sfumato.data import ExampleDataset, UserDataset
from sfumato.federated import Verification
from sfumato.training import PrivatePlan, Task, TrainingPlan


@dataclass(frozen=True, kw_only=True)
class RecordKind:
    """What differs between training on users and on examples.

    Attributes:
        options: the class of all options, for a plan's class.
        read: the parts of the data, from all options.
        build: the model, from all options, the data and the seed.
        about: what plan.json tells of the model, from all options and the data, so that it can be built again.
        task: how a model is measured, from all options; None for the plan's own way.
    """

    options: Callable[[type[TrainingPlan]], Any]
    read: Callable[..., Any]
    build: Callable[[Any, Any, int | None], nn.Module]
    about: Callable[[Any, Any], dict[str, Any]]
    task: Callable[[Any], Task | None]


def _build_of_users(options: Any, data: UserDataset, seed: int | None) -> nn.Module:
    run: RunOptions = options.run
    if data.of_sequences:
        return build_language_model(
            options.model,
            data,
            seed,
            load=run.resume is None,
            quiet=run.json,
            oov_buckets=options.data.oov_buckets,
        )
    return build(options.model, data.input_shape, seed, load=run.resume is None, quiet=run.json)


def _build_classifier(options: Any, data: ExampleDataset, seed: int | None) -> nn.Module:
    run: RunOptions = options.run
    return build_classifier(options.model, data, seed, load=run.resume is None, quiet=run.json, reading=options.data)


def _read_examples(options: Any, *, quiet: bool) -> ExampleParts:
    return read_example_parts(options.data, classes=options.plan.task == "classes", quiet=quiet)


def _about_users(options: Any, data: UserDataset) -> dict[str, Any]:
    if data.of_sequences:
        counted = options.data.counts_vocabulary  # the size is known when the words are
        return {"input_shape": data.input_shape, **({} if counted else {"vocabulary_size": data.num_classes})}
    return {"input_shape": data.input_shape, "embedding_dim": embedding_dim_of(options.model)}


def _recall(options: Any) -> Verification | None:
    return None if options.plan.loss == "next_token" else Verification(fars=options.run.far)


RECORD_KINDS = {
    "users": RecordKind(
        options=lambda kind: PrivateTraining[kind] if issubclass(kind, PrivatePlan) else Training[kind],  # type: ignore[valid-type]
        read=lambda options, *, quiet: read_parts(options.data, quiet=quiet),
        build=_build_of_users,
        about=_about_users,
        task=_recall,
    ),
    "examples": RecordKind(
        options=lambda kind: ExampleTraining[kind],  # type: ignore[valid-type]
        read=_read_examples,
        build=_build_classifier,
        about=lambda options, data: about_classifier(data),
        task=lambda options: None,
    ),
}
"""By the registry's word for them."""
