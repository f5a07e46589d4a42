"""What a client's local training consists of: phases, and the records that each passes over, in their order.

In a phase the shared part, the client's own part or both take steps of SGD. FedAvg has one phase, FedEmb one or two,
Federated Reconstruction rebuilds the own part and then updates the shared one.

shuffle → repeat(epochs) → take(most) → batch, as in federated data pipelines: the order is drawn anew each epoch, the
cap bounds *processed* examples, and a batch may straddle two epochs. An example's place follows from a hash of the
client's seed, the epoch and its number, so that any number of clients is put in order at once.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato._mixing import mixed_bits
from sfumato.federated.local.reconstruction import Reconstruction

_DIVIDED = 1 << 32  # tells the draw that divides a client's records from those of the epochs' orders

Records = Literal["all", "support", "query"]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Some steps of SGD.

    Attributes:
        records: which of a client's records: all of them, its support or the rest.
        own: learning rate of the client's own part; None leaves it.
        shared: learning rate of the shared part; None leaves it.
        batch_size: examples a step; None takes all at once.
        epochs: passes over these records; None passes over them until `most` examples are processed.
        passed_over: examples at the front of the order that a phase before has taken.
        most: processed examples of a client at most, those passed over included; None for no cap.
    """

    records: Records = "all"
    own: float | None
    shared: float | None
    batch_size: int | None
    epochs: int | None = 1
    passed_over: int = 0
    most: int | None = None


def orders_of_examples(
    phase: Phase, sizes: np.ndarray, seeds: np.ndarray, rule: Reconstruction | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Which examples each client processes in a phase, in their order; batches are consecutive pieces.

    Args:
        phase: which.
        sizes: int64 [clients], examples that each has.
        seeds: int64 [clients]; nothing else decides a client's order.
        rule: divides the records, where the phase is about a part of them.

    Returns:
        int64 [n], numbers of examples from 0 within a client, one client after the other; and how many each processes,
        int64 [clients].
    """
    if phase.records == "all":
        return _order(phase, sizes, seeds)
    assert rule is not None
    parts, first = _divided(phase.records, sizes, seeds, rule), rule.supports(sizes)
    held = first if phase.records == "support" else sizes - first
    order, counts = _order(phase, held, seeds)
    starts = np.cumsum(held) - held
    return parts[order + np.repeat(starts, counts)], counts


def counts_of_examples(phase: Phase, sizes: np.ndarray, rule: Reconstruction | None = None) -> np.ndarray:
    """How many examples each client processes in a phase, int64 [clients]; arguments as for `orders_of_examples`."""
    if phase.records != "all":
        assert rule is not None
        first = rule.supports(sizes)
        sizes = first if phase.records == "support" else sizes - first
    counts = sizes * _passes(phase, sizes)
    least, most = phase.passed_over, counts.max(initial=0) if phase.most is None else phase.most
    return np.clip(counts, least, max(least, most)) - least


def _passes(phase: Phase, sizes: np.ndarray) -> np.ndarray:
    """How often each client goes over its examples, before any cap."""
    if phase.epochs is not None:
        return np.full(len(sizes), phase.epochs)
    assert phase.most is not None
    return -(-phase.most // np.maximum(1, sizes)) * (sizes > 0)


def _divided(records: Records, sizes: np.ndarray, seeds: np.ndarray, rule: Reconstruction) -> np.ndarray:
    """Numbers of the examples of each client's support or of the rest, ascending, one client after the other."""
    client = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    number = np.arange(len(client)) - starts[client]
    rank = number
    if rule.support_order == "random":
        keys = mixed_bits(number, seeds[client].astype(np.uint64), _DIVIDED)
        rank = np.empty_like(number)
        rank[_by(client, keys, len(sizes))] = number
    chosen = rank < rule.supports(sizes)[client]
    return number[chosen if records == "support" else ~chosen]


def _order(phase: Phase, sizes: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of all of these examples, epoch by epoch."""
    passes = _passes(phase, sizes)
    owner = np.repeat(np.arange(len(sizes)), passes)  # of each epoch
    epochs = sizes[owner]  # one entry an epoch of a client
    ends = np.cumsum(epochs)
    entry = np.repeat(np.arange(len(epochs)), epochs)
    number = np.arange(len(entry)) - (ends - epochs)[entry]
    client = owner[entry]
    epoch = entry - (np.cumsum(passes) - passes)[client]
    keys = mixed_bits(number, seeds[client].astype(np.uint64), epoch)
    order = number[_by(entry, keys, len(epochs))]
    counts = sizes * passes
    least, most = phase.passed_over, counts.max(initial=0) if phase.most is None else phase.most
    if not least and (counts <= most).all():
        return order, counts
    place = np.arange(len(order)) - (np.cumsum(counts) - counts)[client]
    return order[(place >= least) & (place < most)], np.clip(counts, least, max(least, most)) - least


def _by(group: np.ndarray, keys: np.ndarray, groups: int) -> np.ndarray:
    """Places in the order of groups, and of keys within a group, which differ there.

    By key first; then by group, in two bytes where they do, which is fastest.
    """
    by_key = np.argsort(keys)
    return by_key[np.argsort(group[by_key].astype(np.min_scalar_type(groups)), kind="stable")]
