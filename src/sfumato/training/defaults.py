"""Sizes and rates that a plan takes where none were chosen: rules of public numbers alone.

They read the public number of units, whether there is noise, and the number of steps; never a record. How they were
found, and how they compare with a search, is in `docs/explanation/defaults.md`.

**Batch.** With noise, the power of two that is nearest to 8√N: for a fixed number of steps the noise on the mean falls
as the batch grows, and the root bounds what a step costs. Without noise a batch above 256 only makes steps fewer. Never
more than half of the units.

>>> [usual_batch(units, noise=True) for units in (142, 1_437, 26_048, 60_000)]
[71, 256, 1024, 2048]
>>> [usual_batch(units, noise=False) for units in (20, 1_437, 60_000)]
[10, 256, 256]

**Steps.** Ten passes over the units, and at least `FEWEST_STEPS`.

>>> usual_steps(60_000, 256), usual_steps(1_437, 256)
(2344, 300)

**Rate.** Each step moves the model by at most rate × clip norm, so fewer steps need a higher rate: √(300 / steps), from
1 to 4, and half of that where there are no classes; a norm above 1 divides it by the norm's root. Noise then limits it
(`training.server`). Optimisers that divide by a running norm take steps of about their rate in every coordinate, so
theirs is 0.002.

>>> [round(usual_rate("sgd", steps), 2) for steps in (10, 127, 1000)]
[4.0, 1.54, 1.0]
>>> round(usual_rate("sgd", 1000, classes=False, norm=20.0), 2)
0.11

**Clip norm.** 1; for a table 10 for classes and 20 for counts, and 20 for both without noise. With a norm of 1 nearly
all gradients of a table are clipped, those of rare classes and of large counts most: too few of these are predicted,
and the loss may be worse than that of a constant.

>>> table_norm("classes", noise=True), table_norm("counts", noise=True), table_norm("classes", noise=False)
(10.0, 20.0, 20.0)

**Users.** Cohorts of virtual clients are made smaller where there are fewer users than planned.

>>> fitting_clients(26, clients=32, users_per_client=8), fitting_clients(400, clients=32, users_per_client=8)
((4, 6), (32, 8))

**Own parts of values.** A user's vector is rebuilt by `VALUES_REBUILT`: a few steps, each on all records of the
support. Small batches follow single records, and what they rebuild from few of them is worse than a user's mean.

**Texts.** Recurrent networks have small gradients, so a client's step on the next character or word has rate
`TEXT_CLIENT_RATE`, without momentum. Of few users an LSTM on characters is small.

>>> usual_lstm(80), usual_lstm(5_000)
({'hidden': 128, 'layers': 1}, {})
"""

import math
from collections.abc import Mapping
from typing import Any

FEWEST_STEPS = 300
"""With fewer the models of the trials were far from trained."""

TEXT_CLIENT_RATE = 2.0
"""Of a client's steps on texts; 400 times that on pictures, with which models of texts learned the frequencies of
single characters in 200 rounds and no more."""

VALUES_REBUILT: Mapping[str, Any] = {
    "steps": 10,
    "epochs": None,
    "batch_size": 1000,
    "learning_rate": 0.3,
}
"""Settings of `client.local` for ratings and other values, with the squared loss. A rate of 0.5 and more overshoots
where there are biases and vectors of length 1."""

_FEW_USERS = 1000  # below, the published LSTM of characters has more parameters than a run can train
_LARGEST_BATCH_WITHOUT_NOISE = 256
_HIGHEST = 4.0  # above it plain networks diverged, without noise too
_ADAPTIVE = 0.002
_CLIENTS = 4  # virtual clients at least, where users are few


def usual_batch(units: int, *, noise: bool) -> int:
    """Units in a step.

    Args:
        units: public number of units, >= 1.
        noise: whether noise is added.
    """
    size = 2 ** round(math.log2(8 * math.sqrt(units)))
    return max(1, min(size if noise else min(size, _LARGEST_BATCH_WITHOUT_NOISE), units // 2))


def usual_steps(units: int, batch: int) -> int:
    """Steps of a run on so many units, in batches of so many."""
    return max(FEWEST_STEPS, math.ceil(10 * units / batch))


def usual_rate(optimizer: str, steps: int, *, momentum: float = 0.0, classes: bool = True, norm: float = 1.0) -> float:
    """The learning rate before noise limits it.

    Args:
        optimizer: its name.
        steps: of the run, >= 1.
        momentum: of SGD, in [0, 1).
        classes: whether the loss is the cross entropy of classes.
        norm: that contributions are clipped to, > 0.
    """
    if optimizer != "sgd":
        return _ADAPTIVE
    rate = min(_HIGHEST, max(1.0, math.sqrt(FEWEST_STEPS / steps)))
    return rate * (1 - momentum) * (1.0 if classes else 0.5) / math.sqrt(max(1.0, norm))


def table_norm(task: str, *, noise: bool) -> float:
    """The clip norm of the gradient of a row of a table; what noise allows lowers the rate accordingly.

    Args:
        task: "classes", "counts" or "regression".
        noise: whether noise is added.
    """
    if task == "regression":
        return 1.0
    return 10.0 if noise and task == "classes" else 20.0


def fitting_clients(units: int, *, clients: int, users_per_client: int) -> tuple[int, int]:
    """Clients in a round, and users in each of them, that so many users are enough for.

    Args:
        units: public number of users, >= 1.
        clients, users_per_client: as planned.
    """
    if clients * users_per_client <= units:
        return clients, users_per_client
    users = users_per_client if users_per_client == 1 else max(2, min(users_per_client, units // _CLIENTS))
    return max(1, min(clients, units // users)), users


def usual_lstm(units: int) -> dict[str, int]:
    """Sizes of an LSTM on characters; none for those of the published one.

    Args:
        units: public number of users, >= 1.
    """
    return {"hidden": 128, "layers": 1} if units < _FEW_USERS else {}
