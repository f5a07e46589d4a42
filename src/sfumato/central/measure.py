"""What a model says of the examples of a data set, in bounded memory, and whether its task fits them.

Whatever is measured on private records is private: only public or consented data belongs in an evaluation that is
released.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.central.inputs import call
from sfumato.central.losses import logits_of
from sfumato.data import ExampleDataset, UserDataset, to_tensor

_BATCH = 512


def outputs_of(model: nn.Module, data: ExampleDataset, *, device: str = "cpu") -> Iterator[tuple[Any, Tensor | None]]:
    """Outputs of all examples in bounded memory, of the model in evaluation mode.

    Yields:
        what the model gives, and targets [n] or [n, k] or None, on the device.
    """
    was_training = model.training
    model.eval()
    try:
        for inputs, targets in data.batches(_BATCH):
            with torch.inference_mode():
                outputs = call(model, [to_tensor(x).to(device) for x in inputs], data.input_names)
            yield outputs, None if targets is None else torch.from_numpy(targets).to(device)
    finally:
        model.train(was_training)


def predict(model: nn.Module, data: ExampleDataset, *, device: str = "cpu") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Targets and predictions of all examples, for a model whose outputs `logits_of` can read.

    Yields:
        targets [n] or [n, k], outputs float32 [n, …].

    Raises:
        InputError: there are no targets.
    """
    for outputs, targets in outputs_of(model, data, device=device):
        if targets is None:
            raise InputError("the examples have no targets to measure against; give them, or task=own with a loss")
        yield targets.cpu().numpy(), logits_of(outputs).float().cpu().numpy()


def refuse_few(data: ExampleDataset) -> None:
    """Raise InputError if these are no single examples, or nobody can hide among them."""
    if not isinstance(data, ExampleDataset):
        remedy = "data.examples_from_table(table, input=…, label=…) makes one of a table"
        if isinstance(data, UserDataset):
            remedy = "data.examples_from_users(people) takes them one by one; to hide whole users take FedAvg or FedEmb"
        raise InputError(f"data must be single examples (ExampleDataset), got {type(data).__name__}; {remedy}")
    if len(data) < 2:
        raise InputError(f"the data set has {len(data)} examples; a private sum needs at least 2")


def refuse_targets(data: ExampleDataset, task: str, wanted: str, remedy: str) -> NoReturn:
    """Raise InputError about targets that are of another kind than a task's."""
    given = "none" if data.targets is None else f"{data.targets.dtype} {data.targets.shape}"
    if data.num_classes is not None:
        given = f"{data.num_classes:,} classes"
    raise InputError(f"task={task} needs {wanted} as targets, got {given}; {remedy}")
