"""A model as one vector: what is trained, what stays as it was, and what is released.

Copying, subtracting and clipping a model are single operations on the vector. It belongs to a copy of the user's
module whose trained parameters are views of it; the user's own module is never touched.
"""

import copy

import torch
from torch import Tensor, nn

from sfumato._check import InputError, first_line
from sfumato.clipping import Layout
from sfumato.models import refresh_statistics, trainable_parameters
from sfumato.models.layers.public_batch_norm import public_inputs_of

HEAD = "head.weight"
"""The released name of a head that is trained beside the model."""


class Trainable:
    """A copy of a module in training mode; only the chosen parameters require a gradient.

    Args:
        model: the user's module.
        spec: which parameters are trained; see `sfumato.models.trainable_parameters`.
        device: where the copy lies.
        head: float [classes, d], one more trained parameter that is no part of the module; None for none.

    Attributes:
        model: the copy.
        layout: names and shapes of the trained parameters, the head last.
        parameters: the trained parameters, each a view of `vector`.
        vector: float [size], all of them one after the other.
        initial: float [size], the vector to start from.

    Raises:
        InputError: the module cannot be copied, nothing is to be trained, or a parameter is no real number.
    """

    def __init__(
        self, model: nn.Module, spec: str = "all", *, device: torch.device | str = "cpu", head: Tensor | None = None
    ) -> None:
        self.model = copied(model).to(device).train()
        bare = head is not None and not any(True for _ in self.model.parameters())
        named = [] if bare else _chosen(self.model, spec)
        if head is not None:
            named = [*named, (HEAD, nn.Parameter(head.to(device, copy=True)))]
        self._head = head is not None
        self.parameters = [parameter for _, parameter in named]
        self.layout = Layout([name for name, _ in named], [parameter.shape for parameter in self.parameters])
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])
        for parameter, view in zip(self.parameters, self.views(self.vector), strict=True):
            parameter.data = view
        self.initial = self.vector.clone()
        self._keep_buffers()

    def views(self, vector: Tensor) -> list[Tensor]:
        """Views of a vector [..., size] in the parameters' shapes [..., *shape]."""
        return self.layout.views(vector)

    def load(self, theta: Tensor) -> None:
        """Put a parameter vector, float [size], into the model."""
        # One by one, so that each parameter's version tells that it has changed.
        with torch.no_grad():
            for parameter, view in zip(self.parameters, self.views(theta), strict=True):
                parameter.copy_(view)

    def released(self) -> dict[str, Tensor]:
        """The tensors to release after `load`: the model's, with statistics of public inputs as of these weights."""
        for part in self.with_public_inputs():
            self.model.eval()
            refresh_statistics(part, *(public_inputs_of(part) or ()))
        tensors = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}
        if self._head:
            tensors[HEAD] = self.parameters[-1].detach().cpu().clone()
        return tensors

    def frozen(self) -> dict[str, Tensor]:
        """Tensors of the model that are not trained."""
        trained = set(self.layout.names)
        return {name: value for name, value in self.model.state_dict().items() if name not in trained}

    def load_frozen(self, tensors: dict[str, Tensor]) -> None:
        """Put the tensors that are not trained back."""
        self.model.load_state_dict(tensors, strict=False)
        self._keep_buffers()

    def restore_buffers(self) -> None:
        """Undo what training did to buffers: they are not released, and no contribution may see another's."""
        for buffer, kept in self._buffers:
            buffer.copy_(kept)

    def with_public_inputs(self) -> list[nn.Module]:
        """The model, or the parts of it, that have public inputs for their norm layers."""
        return [part for part in self.model.modules() if public_inputs_of(part) is not None]

    def _keep_buffers(self) -> None:
        self._buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]


def copied(model: nn.Module) -> nn.Module:
    """A copy of the user's module, which may be tried out and changed.

    Raises:
        InputError: it holds something that cannot be copied.
    """
    try:
        return copy.deepcopy(model)
    except (TypeError, RuntimeError) as error:
        raise InputError(
            f"the model cannot be copied ({first_line(error)}); keep generators, open files and computed tensors "
            "out of its attributes"
        ) from error


def _chosen(model: nn.Module, spec: str) -> list[tuple[str, nn.Parameter]]:
    """The parameters to train; all others are frozen."""
    named = trainable_parameters(model, spec)
    for name, parameter in named:
        if not parameter.is_floating_point():
            raise InputError(f"parameter {name} is {parameter.dtype}; use real numbers, or freeze it")
    chosen = {id(parameter) for _, parameter in named}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in chosen)
    return named
