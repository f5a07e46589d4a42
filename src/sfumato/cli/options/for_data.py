"""What a plan trains by where nobody has chosen: the loss that its kind of data has, and how many clients at once."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal, TypeVar, get_args

from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated import Centralized, FederatedPlan, FedRecon
from sfumato.federated.local.losses import Loss, without_head

P = TypeVar("P", bound=FederatedPlan | Centralized)

Kind = Literal["texts", "values", "classes"]

_LOSSES: dict[Kind, tuple[Loss, ...]] = {
    "texts": ("next_token",),
    "values": ("squared",),
    "classes": tuple(loss for loss in get_args(Loss) if loss not in ("next_token", "squared")),
}


def kind_of(data: UserDataset) -> Kind:
    """What the labels are."""
    return "texts" if data.of_sequences else "values" if data.of_values else "classes"


def fitted(plan: P, kind: Kind, given: Collection[str]) -> P:
    """The plan with the loss that such data have.

    Args:
        plan: as it was given.
        kind: of the data.
        given: fields that somebody has chosen; they stay.

    Raises:
        InputError: a loss of embeddings was chosen for other data, or the plan has none for these.
    """
    fits = _LOSSES[kind]
    if plan.loss not in fits and "loss" not in given:
        plan = replace(plan, loss=fits[-1])
    if kind != "classes" and not without_head(plan.loss):  # tasks refuse all other losses that do not fit
        raise InputError(f"--loss {plan.loss} compares embeddings, and {kind} have {fits[-1]}; leave it out")
    if isinstance(plan, FedRecon) and kind == "texts" and "clients_at_once" not in given:
        plan = replace(plan, clients_at_once=1)  # a recurrence over many clients at once is slower than one by one
    return plan
