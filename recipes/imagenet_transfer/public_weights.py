"""Weights from public pictures, trained once: a process that comes second waits, or loads the file."""

import fcntl
import json
from pathlib import Path

import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset
from sfumato.models.weights import read_metadata, save_weights


def network(data: ExampleDataset) -> nn.Module:
    """The paper's ResNet-18 with group norm; ResNet-20, with the same stem, where pictures are below 64 pixels."""
    large = min(data.input_shapes[0][:2]) >= 64
    return models.classifier("resnet18" if large else "resnet20", data.num_classes, data.input_shapes, stem="imagenet")


def last_stage(model: nn.Module) -> str:
    """What the paper trains: the last stage of blocks and the head; the first layers stay as they are."""
    return rf"^({max(name for name, _ in model.named_children() if name.startswith('layer'))}|embedding)\."


def public_weights(data: ExampleDataset, plan: DPSGD, folder: Path) -> Path:
    """The file of weights; it is trained if it is not there.

    Two processes that need it at the same time train it once: the second waits for a lock, which the system frees
    when a process ends. A run that was stopped goes on. The file is written as a whole or not at all.

    Args:
        data: public pictures.
        plan: without noise, with a seed.
        folder: of the file and of its run.

    Raises:
        InputError: the file is of other pictures or another plan.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "public.safetensors"
    source = json.loads(json.dumps({"pictures": data.fingerprint(), "plan": plan.for_population(len(data)).to_json()}))
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            _train(data, plan, folder / "run", file, source)
    if read_metadata(file) != source:
        raise InputError(f"{file} was trained on other pictures or with other settings; choose another --out")
    return file


def _train(data: ExampleDataset, plan: DPSGD, folder: Path, file: Path, source: dict) -> None:
    torch.manual_seed(plan.seed or 0)
    begun = (folder / "checkpoint" / "state.safetensors").exists()
    result = plan.fit(network(data), data, out=folder, resume=begun)
    if not result.finished:
        raise InputError(f"training on public pictures was stopped; start again to go on in {folder}")
    save_weights(result.model, file, metadata=source)
