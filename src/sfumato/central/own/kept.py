"""What a user keeps beside the model (a scheduler, a moving average): its state as tensors and JSON, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from sfumato._check import InputError


def saved(objects: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and JSON in which a tensor is {"tensor": name}.

    Raises:
        InputError: an object without a state, or a state that neither can hold.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, {name: _plain(each.state_dict(), name, tensors) for name, each in objects.items()}


def restore(objects: Mapping[str, Any], tensors: Mapping[str, Tensor], states: Mapping[str, Any]) -> None:
    """Put the states back.

    Raises:
        InputError: other objects than were kept.
    """
    if set(objects) != set(states):
        raise InputError(
            f"the run kept {', '.join(sorted(states)) or 'nothing'}, and now is to keep "
            f"{', '.join(sorted(objects)) or 'nothing'}; give the same objects as keep"
        )
    for name, each in objects.items():
        each.load_state_dict(_whole(states[name], tensors))


def refuse_stateless(objects: Any) -> None:
    """Refuse what has no state that can be kept.

    Raises:
        InputError: names it.
    """
    if not isinstance(objects, Mapping):
        raise InputError(f"keep must name its objects, keep={{'scheduler': scheduler}}, got {type(objects).__name__}")
    for name, each in objects.items():
        if not hasattr(each, "state_dict") or not hasattr(each, "load_state_dict"):
            raise InputError(f"keep: {name} has no state_dict and load_state_dict, got {type(each).__name__}")
    saved(objects)


def _plain(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"items": [[key, _plain(each, f"{name}.{key}", tensors)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{name}.{index}", tensors) for index, each in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"keep: the state {name} is {type(value).__name__}, which a checkpoint cannot hold; leave it out, or give it a "
        "state_dict of tensors, numbers, text, lists and dictionaries"
    )


def _whole(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        return tensors[value["tensor"]]
    if isinstance(value, dict):
        return {key: _whole(each, tensors) for key, each in value["items"]}
    return [_whole(each, tensors) for each in value] if isinstance(value, list) else value
