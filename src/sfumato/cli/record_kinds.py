"""The kinds of records that a training command can have: their options, their reader, and the models for them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from sfumato._check import InputError
from sfumato.cli.options.backbones import build, embedding_dim_of
from sfumato.cli.options.classifiers import about_classifier, build_classifier
from sfumato.cli.options.examples import ExampleParts, read_example_parts
from sfumato.cli.options.for_data import fitted, kind_of
from sfumato.cli.options.output_models import build_output_model, public_sizes
from sfumato.cli.options.training import ExampleTraining, PrivateTraining, RunOptions, Training
from sfumato.cli.options.untrained import refuse_idle_adapters
from sfumato.cli.options.users import read_parts
from sfumato.cli.own_model import is_own
from sfumato.cli.public_lists import public_lists
from sfumato.data import ExampleDataset, UserDataset
from sfumato.federated import FedRecon, Verification
from sfumato.federated.local.losses import without_head
from sfumato.training import PrivatePlan, Task, TrainingPlan


@dataclass(frozen=True, kw_only=True)
class RecordKind:
    """What differs between training on users and on examples.

    Attributes:
        options: the class of all options, for a plan's class.
        read: the parts of the data, from all options.
        fit: the plan with what follows from the kind of the data, from it, the data and the names of chosen fields.
        build: the model, from all options, the fitted plan, the data and the seed.
        about: what plan.json tells of the model, from all options, the fitted plan and the data, so that it can be
            built again.
        task: how a model is measured, from all options and the fitted plan; None for the plan's own way.
        takes: what of the data's domain the run is built by, from the fitted plan and the data (`data.domain`).
        lists: public lists beside plan.json, by the file's name, from the fitted plan and the data.
    """

    options: Callable[[type[TrainingPlan]], Any]
    read: Callable[..., Any]
    fit: Callable[[Any, Any, Collection[str]], TrainingPlan]
    build: Callable[[Any, Any, Any, int | None], nn.Module]
    about: Callable[[Any, Any, Any], dict[str, Any]]
    task: Callable[[Any, Any], Task | None]
    takes: Callable[[Any, Any], Sequence[str]]
    lists: Callable[[Any, Any], Mapping[str, Sequence[str]]]


def _build_of_users(options: Any, plan: Any, data: UserDataset, seed: int | None) -> nn.Module:
    run: RunOptions = options.run
    if not without_head(plan.loss):
        if run.resume is None and not is_own(options.model.model):
            refuse_idle_adapters(options.model, plan.trainable)
        loads = run.resume is None
        return build(options.model, data.input_shape, seed, load=loads, quiet=run.json, trainable=plan.trainable)
    model = build_output_model(
        options.model, data, seed, load=run.resume is None, quiet=run.json, oov_buckets=options.data.oov_buckets
    )
    own = getattr(model, "local_parameters", "")
    if own and data.of_values and not isinstance(plan, FedRecon):
        raise InputError(
            f"{options.model.model} has a part of each user's own ({own}), which {plan.name} would share; use sfumato "
            "fedrecon, or in Python a model with users=… on data.with_user_column"
        )
    return model


def _build_classifier(options: Any, plan: Any, data: ExampleDataset, seed: int | None) -> nn.Module:
    run: RunOptions = options.run
    return build_classifier(
        options.model,
        data,
        seed,
        load=run.resume is None,
        quiet=run.json,
        reading=options.data,
        trainable=plan.trainable,
    )


def _read_examples(options: Any, *, quiet: bool) -> ExampleParts:
    plan = options.plan
    return read_example_parts(
        options.data, classes=plan.task == "classes", labels_alone=plan.unit == "label", quiet=quiet
    )


def _about_users(options: Any, plan: Any, data: UserDataset) -> dict[str, Any]:
    if without_head(plan.loss):
        told = public_sizes(data)
        if options.data.counts_vocabulary:  # the size is known when the words are
            told.pop("vocabulary_size")
        return told
    dimensions = None if is_own(options.model.model) else embedding_dim_of(options.model)
    return {"input_shape": data.input_shape, "embedding_dim": dimensions}


def _recall(options: Any, plan: Any) -> Verification | None:
    return Verification(fars=options.run.far) if isinstance(plan.default_task(), Verification) else None


def _lists(plan: Any, data: UserDataset) -> Mapping[str, Sequence[str]]:
    return public_lists(data) if isinstance(plan, FedRecon) else {}


RECORD_KINDS = {
    "users": RecordKind(
        options=lambda kind: PrivateTraining[kind] if issubclass(kind, PrivatePlan) else Training[kind],  # type: ignore[valid-type]
        read=lambda options, *, quiet: read_parts(options.data, quiet=quiet),
        fit=lambda plan, data, given: fitted(plan, kind_of(data), given),
        build=_build_of_users,
        about=_about_users,
        task=_recall,
        takes=lambda plan, data: data.found if without_head(plan.loss) else plan.takes(data),
        lists=_lists,
    ),
    "examples": RecordKind(
        options=lambda kind: ExampleTraining[kind],  # type: ignore[valid-type]
        read=_read_examples,
        fit=lambda plan, data, given: plan,
        build=_build_classifier,
        about=lambda options, plan, data: about_classifier(data),
        task=lambda options, plan: None,
        takes=lambda plan, data: data.found,
        lists=lambda plan, data: {},
    ),
}
"""By the registry's word for them."""
