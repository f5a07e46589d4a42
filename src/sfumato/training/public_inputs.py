"""Inputs that are given as public are so by declaration; what can be checked is that no record is one.

What a model learns from public inputs, of its norm layers or as negatives beside clients' records, is not accounted. So
a run whose public inputs hold a training record is refused, whoever put it there; a row of nothing but equal numbers
(an empty picture) tells nothing, and is let pass.
"""

import hashlib
from collections.abc import Iterable

from torch import Tensor

from sfumato._check import InputError
from sfumato.models.public_batch_norm import public_inputs_of
from sfumato.training.trainable import Trainable


def refuse_private_as_public(trained: Trainable, records: Iterable[tuple[Tensor, ...]]) -> None:
    """Compare public inputs with all records; nothing is read where the model has none.

    Args:
        trained: the model.
        records: batches of inputs as the model gets them.

    Raises:
        InputError: tells how many are in both.
    """
    parts = trained.with_public_inputs()
    refuse_private_rows(
        (public_inputs_of(part) or () for part in parts), records, of="public inputs of the norm layers"
    )


def refuse_private_rows(
    public: Iterable[tuple[Tensor, ...]], records: Iterable[tuple[Tensor, ...]], *, of: str
) -> None:
    """Compare public rows with all records; no record is read where there are no public rows.

    Args:
        public: batches of inputs as the model gets them.
        records: the same of the private ones.
        of: what the public rows are, for the message.

    Raises:
        InputError: tells how many are in both.
    """
    rows = {row for batch in public for row in _digests(batch)}
    if not rows:
        return
    found = set().union(*(rows.intersection(_digests(batch)) for batch in records))
    if found:
        raise InputError(
            f"{len(found)} of the {len(rows)} {of} are training records: what is learned "
            "from them has no noise; give other inputs, which are nobody's, or leave the records out of the training"
        )


def _digests(inputs: tuple[Tensor, ...]) -> Iterable[bytes]:
    """Of each row of several inputs together; in single precision, whichever precision the model has."""
    if not inputs:
        return
    # zeros of either sign are one number
    rows = [(each.float() + 0.0 if each.is_floating_point() else each).cpu().contiguous().flatten(1) for each in inputs]
    for row in zip(*rows, strict=True):
        if any(len(part) and bool((part != part[0]).any()) for part in row):
            yield hashlib.blake2b(b"".join(part.numpy().tobytes() for part in row), digest_size=16).digest()
