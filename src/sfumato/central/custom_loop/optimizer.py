"""The user's own optimiser, which takes a step when the private sum says so and at no other time.

Between two steps the parameters have no gradient. A step that is taken by hand would follow a gradient without noise,
so it is refused; so is a gradient that somebody has put there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sfumato._check import InputError


class WrappedOptimizer:
    """What a `Server` needs of an optimiser, in front of the user's.

    Args:
        optimizer: the user's; it holds `theirs`.
        theirs: the model's trained parameters.
        given: the server's parameters of the same values and shapes, whose gradients are the noisy mean.
        step: takes the optimiser's step.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        theirs: Sequence[nn.Parameter],
        given: Sequence[nn.Parameter],
        step: Callable[[], object],
    ) -> None:
        self._step = step
        self._optimizer, self._theirs, self._given = optimizer, list(theirs), list(given)
        self._settings: list[dict[str, Any]] = []
        self._allowed = False
        self._handle = optimizer.register_step_pre_hook(self._refuse)
        self.param_groups: list[dict[str, Any]] = []  # rates are the user's affair

    def begin(self) -> bool:
        """The user's code has gone on to the next step: from here on settings stay, until it is taken.

        Returns:
            whether they are others than in the step before.
        """
        before, self._settings = self._settings, settings_of(self._optimizer)
        return bool(before) and before != self._settings

    def step(self) -> None:
        """One step of theirs by the gradients of ours.

        Raises:
            InputError: a rate or another setting was changed while the micro-batches of the step went through.
        """
        refuse_gradients(self._theirs)
        refuse_changed(self._optimizer, self._settings, "between the first micro-batch of a step and the step itself")
        own = [parameter.data for parameter in self._theirs]
        try:
            for parameter, given in zip(self._theirs, self._given, strict=True):
                parameter.data, parameter.grad = given.data, given.grad
            self._allowed = True
            self._step()
            for parameter, given in zip(self._theirs, self._given, strict=True):
                if parameter.data_ptr() != given.data_ptr():  # an optimiser that assigns .data
                    given.data.copy_(parameter.data)
        finally:
            self._allowed = False
            for parameter, data in zip(self._theirs, own, strict=True):
                parameter.data, parameter.grad = data, None
        self.show()

    def show(self) -> None:
        """Put the server's values into the model."""
        with torch.no_grad():
            for parameter, given in zip(self._theirs, self._given, strict=True):
                parameter.copy_(given)

    def state_dict(self) -> dict[str, Any]:
        """The user's."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Into the user's."""
        self._optimizer.load_state_dict(state)

    def refuse_others(self) -> None:
        """Refuse parameters that were frozen, added or taken out since the run began.

        Raises:
            InputError: there are some.
        """
        held = {id(parameter) for group in self._optimizer.param_groups for parameter in group["params"]}
        if held != {id(parameter) for parameter in self._theirs} or not all(p.requires_grad for p in self._theirs):
            raise InputError(
                "the optimiser's parameters, or their requires_grad, changed since the run was opened; a run trains "
                "the same parameters throughout: end it, and open another one"
            )

    def give_back(self) -> None:
        """The optimiser is the user's again."""
        self._handle.remove()

    def _refuse(self, *_: Any) -> None:
        if not self._allowed:
            raise InputError(
                "optimizer.step() was called by hand, which adds no noise; leave it out: backward(losses) of the "
                "last micro-batch takes the step"
            )


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The rates and other settings of each group of parameters, those that an optimiser of this kind has."""
    return [
        {
            name: value.tolist() if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name in optimizer.defaults
        }
        for group in optimizer.param_groups
    ]


def refuse_changed(optimizer: torch.optim.Optimizer, settings: list[dict[str, Any]], when: str) -> None:
    """Refuse other settings than these.

    Args:
        optimizer: the user's.
        settings: as they were.
        when: in which time they must not change.

    Raises:
        InputError: with the name of one that is another.
    """
    now = settings_of(optimizer)
    for before, group in zip(settings, now, strict=False):
        for name in before.keys() | group.keys():
            if before.get(name) != group.get(name):
                raise InputError(
                    f"{name} of the optimiser was changed {when}, where losses without noise could decide it; change "
                    "it after the inner loop of steps(), by done"
                )


def refuse_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Refuse gradients that somebody else has put there.

    Raises:
        InputError: there is one.
    """
    if any(parameter.grad is not None for parameter in parameters):
        raise InputError(
            "a trained parameter has a .grad that the run did not write, without noise; leave .grad alone, "
            "and give the losses to backward(losses)"
        )


def trained_by(optimizer: Any, model: nn.Module) -> list[str]:
    """Names of the model's parameters that an optimiser holds.

    Raises:
        InputError: no optimiser of torch, parameters of another model, or one of this model's that it leaves out.
    """
    _refuse_kind(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InputError(
            "LBFGS computes the loss several times a step, at the cost of a release each; use SGD, Adam or "
            "another optimiser without a closure"
        )
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    strangers = [
        tuple(parameter.shape)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if id(parameter) not in named
    ]
    if strangers:
        raise InputError(
            f"the optimiser holds a parameter of shape {strangers[0]}, none of the model's; build it from "
            "this model's parameters, after the model is on its device"
        )
    for key, name in named.items():
        parameter = model.get_parameter(name)
        if parameter.requires_grad and key not in held:
            raise InputError(
                f"parameter {name} requires a gradient and is not in the optimiser; add it, or freeze it "
                "(parameter.requires_grad_(False))"
            )
        if key in held and not parameter.requires_grad:
            raise InputError(f"parameter {name} is in the optimiser and requires no gradient; take it out, or train it")
    return [named[key] for key in named if key in held]


def described(optimizer: torch.optim.Optimizer) -> str:
    """The optimiser's kind and settings.

    Raises:
        InputError: it is none of torch.
    """
    _refuse_kind(optimizer)
    groups = [
        {name: value for name, value in group.items() if name != "params" and not isinstance(value, Tensor)}
        for group in optimizer.param_groups
    ]
    return f"{type(optimizer).__qualname__} {groups}"


def _refuse_kind(optimizer: Any) -> None:
    if isinstance(optimizer, torch.optim.Optimizer):
        return
    given = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else type(optimizer).__name__
    raise InputError(
        f"optimizer must be one of torch.optim's, got {given}; give torch.optim.Adam(model.parameters()) for example, "
        "and a scheduler by keep="
    )
