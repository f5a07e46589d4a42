"""A model as one vector: what is trained, what stays as it was, and what is released.

Copying, subtracting and clipping a model are single operations on the vector. It belongs to a copy of the user's
module whose trained parameters are views of it; the user's own module is never touched.

What is not trained is kept as it was before any record was seen, and is released from there: whatever forward passes
write into parameters, buffers or attributes of the copy (an initialisation by the first batch, a moving average, a
power iteration), nothing of it leaves. `put_back` undoes it, and `forget` what is in plain attributes, so that no
contribution meets another one's traces.
Statistics of public inputs follow the weights; for a release, a fresh copy computes them.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sfumato._check import InputError, first_line
from sfumato.clipping import Layout
from sfumato.guard.trial import Attributes, same_values
from sfumato.models import PublicBatchNorm, refresh_statistics, trainable_parameters
from sfumato.models.public_batch_norm import public_inputs_of
from sfumato.training.row_tables import Tables

HEAD = "head.weight"
"""The released name of a head that is trained with the model."""

_SHOWN = 8  # names in a message


class Trainable:
    """A copy of a module in training mode; only the chosen parameters require a gradient.

    Args:
        model: the user's module; what is released is a copy of it, so it has to stay as it is until the run ends.
        spec: which parameters are trained; see `sfumato.models.trainable_parameters`.
        device: where the copy lies.
        head: float [classes, d], one more trained parameter that is no part of the module; None for none.
        in_place: train the user's own module, where it is and in the mode it is in, for a loop of the user's own; a
            copy of it as it was is kept for the release.
        local_parameters: a regular expression of whole parameter names: these are each contributor's own. They are no
            part of the vector, begin with the same values for everybody, and are released as they were in the
            beginning.
        tables: of the model, which train row by row and are no part of the vector either.

    Attributes:
        model: the copy, or the user's own.
        local_parameters: the parameters that are each contributor's own, by name.
        layout: names and shapes of the trained parameters, the head last.
        parameters: the trained parameters, each a view of `vector`.
        vector: float [size], all of them one after the other.
        initial: float [size], the vector to start from.
        tables: those that train row by row; mostly none.

    Raises:
        InputError: the module cannot be copied, nothing is to be trained, a parameter is no real number, a tensor is
            called as the shared head is, or `local_parameters` names none or all of those that are trained.
    """

    def __init__(
        self,
        model: nn.Module,
        spec: str = "all",
        *,
        device: torch.device | str = "cpu",
        head: Tensor | None = None,
        in_place: bool = False,
        local_parameters: str | None = None,
        tables: Tables | None = None,
    ) -> None:
        self._source = copied(model) if in_place else model
        self.tables = Tables({}) if tables is None else tables
        self.model = model if in_place else self._copy().to(device).train()
        bare = head is not None and not any(True for _ in self.model.parameters())
        named = [] if bare else _chosen(self.model, spec)
        self.local_parameters = (
            {} if local_parameters is None else _local_parameters(self.model, named, local_parameters)
        )
        elsewhere = {*self.local_parameters, *self.tables.names}
        named = [(name, parameter) for name, parameter in named if name not in elsewhere]
        if head is not None:
            self._refuse_head()
            named = [*named, (HEAD, nn.Parameter(head.to(device, copy=True)))]
        self._head = head is not None
        self.parameters = [parameter for _, parameter in named]
        self.layout = Layout([name for name, _ in named], [parameter.shape for parameter in self.parameters])
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])
        self._views = self.views(self.vector)
        for parameter, view in zip(self.parameters, self._views, strict=True):
            parameter.data = view
        self.initial = self.vector.clone()
        self._registered = [(part, dict(part._parameters), dict(part._buffers)) for part in self.model.modules()]
        self._names = {id(part): name for name, part in self.model.named_modules()}
        self._untrained = self._named_untrained()
        self._kept = {name: tensor.detach().clone() for name, tensor in self._untrained.items()}
        self._began: dict[str, Tensor] = {}
        self._follow = self._public_statistics()
        self._attributes = Attributes(self.model)

    def _refuse_head(self) -> None:
        """In a released file the shared head has a name of its own."""
        if HEAD in self.model.state_dict():
            raise InputError(
                f"the model has a tensor {HEAD}, and so is called the shared head of a released model; give that layer "
                "another name"
            )

    def views(self, vector: Tensor) -> list[Tensor]:
        """Views of a vector [..., size] in the parameters' shapes [..., *shape]."""
        return self.layout.views(vector)

    def load(self, theta: Tensor) -> None:
        """Put a parameter vector, float [size], into the model."""
        # One by one, so that each parameter's version shows that it has changed.
        with torch.no_grad():
            for parameter, view in zip(self.parameters, self.views(theta), strict=True):
                parameter.copy_(view)

    def follow(self, theta: Tensor) -> None:
        """Compute statistics of public inputs, where there are any, with the parameters `theta`, float [size]."""
        for part in self.with_public_inputs() if self._follow else ():
            self.load(theta)
            refresh_statistics(part, *(public_inputs_of(part) or ()))

    def initial_value(self, name: str) -> Tensor:
        """What a tensor of this name that is not in the vector was before any record was seen."""
        return self._kept[name]

    def reset_local_parameters(self) -> None:
        """Give a contributor's own parameters the values that everybody begins with."""
        with torch.no_grad():
            for name, parameter in self.local_parameters.items():
                parameter.copy_(self._kept[name])

    def released(self, theta: Tensor) -> dict[str, Tensor]:
        """The tensors to release with the parameters `theta`, float [size]: they and what is not trained."""
        with self.tables.as_released():
            state = self.released_model(theta).state_dict()
        tensors = {
            name: value if name in self.tables.names else value.detach().cpu().clone()
            for name, value in state.items()
            if isinstance(value, Tensor)
        }
        if self._head:
            tensors[HEAD] = self.views(theta)[-1].detach().cpu().clone()
        return tensors

    def released_model(self, theta: Tensor, *, final: bool = False) -> nn.Module:
        """A fresh copy of the user's module with the parameters `theta`, in evaluation mode; it has seen no record.

        Args:
            theta: float [size].
            final: with tables as ordinary layers, which takes all of their noise; not while the run goes on.
        """
        model = self._copy().to(theta.device).eval()
        values = {id(tensor): self._kept[name] for name, tensor in self._untrained.items()}
        values |= {id(parameter): view for parameter, view in zip(self.parameters, self.views(theta), strict=True)}
        with torch.no_grad():
            for fresh, (_, *registered) in zip(model.modules(), self._registered, strict=True):
                for targets, tensors in zip((fresh._parameters, fresh._buffers), registered, strict=True):
                    for name, tensor in tensors.items():
                        target = targets[name]
                        if tensor is not None and target is not None:
                            target.copy_(values[id(tensor)])
        for part in _with_public_inputs(model):
            refresh_statistics(part, *(public_inputs_of(part) or ()))
        if final:
            self.tables.put_into(model, final=True)
        return model

    def _copy(self) -> nn.Module:
        """A copy of the user's module, with tables that are read row by row."""
        model = copied(self._source, sharing=[self._source.get_parameter(name) for name in self.tables.names])
        self.tables.put_into(model)
        return model

    def shapes(self) -> str:
        """Names and shapes, of what is trained and of what is not, to distinguish one model from another."""
        trained = [(name, tuple(shape)) for name, shape in zip(self.layout.names, self.layout.shapes, strict=True)]
        kept = [(name, tuple(value.shape)) for name, value in self._kept.items()]
        return f"{trained} {kept}{self.tables.shapes()}"

    def frozen(self) -> dict[str, Tensor]:
        """Tensors of the model that are saved and not trained, as they were before any record was seen."""
        parts = self.model.named_modules()
        passing = {_joined(name, each) for name, part in parts for each in part._non_persistent_buffers_set}
        return {name: value for name, value in self._kept.items() if name not in passing}

    def load_frozen(self, tensors: dict[str, Tensor]) -> None:
        """Put the tensors that are not trained back; those that this module began with are kept where they differ."""
        for name, tensor in tensors.items():
            kept = self._kept[name]
            if not same_values(kept, tensor.to(kept.device)):
                self._began.setdefault(name, kept.clone())
            kept.copy_(tensor)
        self.put_back(everything=True)

    @contextmanager
    def as_it_began(self) -> Iterator[None]:
        """A context in which the model has the weights that it had before any record, whatever was loaded since."""
        theta = self.vector.clone()
        with torch.no_grad():
            for name, value in self._began.items():
                self._untrained[name].copy_(value)
        self.load(self.initial)
        try:
            yield
        finally:
            with torch.no_grad():
                for name in self._began:
                    self._untrained[name].copy_(self._kept[name])
            self.load(theta)

    def put_back(self, theta: Tensor | None = None, *, everything: bool = False) -> list[str]:
        """Undo what forward passes wrote: it is not released, and no contribution may see another's.

        Args:
            theta: float [size], what the trained parameters have to be; None leaves them.
            everything: also statistics of public inputs, which otherwise follow the weights by themselves.

        Returns:
            names of what was found changed.
        """
        changed = []
        for part, parameters, buffers in self._registered:
            for now, then in ((part._parameters, parameters), (part._buffers, buffers)):
                if list(now) != list(then) or any(now[name] is not tensor for name, tensor in then.items()):
                    names = [n for n in (*then, *now) if n not in now or n not in then or now[n] is not then[n]]
                    changed += [_joined(self._names[id(part)], names[0])]
                    now.clear()
                    now.update(then)  # pyright: ignore[reportCallIssue, reportArgumentType]
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.data_ptr() != view.data_ptr():
                parameter.data = view
        with torch.no_grad():
            for name, tensor in self._untrained.items():
                if (everything or name not in self._follow) and not same_values(tensor, self._kept[name]):
                    changed.append(name)
                    if tensor.shape == self._kept[name].shape:
                        tensor.copy_(self._kept[name])
                    else:
                        tensor.data = self._kept[name].clone()
        if theta is not None and not same_values(self.vector, theta):
            compared = zip(self.layout.names, self._views, self.views(theta), strict=True)
            changed += [name for name, one, other in compared if not same_values(one, other)]
            self.load(theta)
        return changed

    def forget(self) -> None:
        """Put the plain attributes of the model back to what they were before any record was seen."""
        self._attributes.put_back()

    def touched(self, theta: Tensor) -> list[str]:
        """Names of parameters, buffers and plain attributes that are not what they were; all of it is put back."""
        attributes = self._attributes.changed()
        self.forget()
        return [*self.put_back(theta), *attributes]

    def refuse_changed(self) -> None:
        """Refuse a model into which what was tried before the first round has written; all of it is put back.

        Raises:
            InputError: names the parameter or buffer.
        """
        changed = self.put_back(self.initial)
        if changed:
            what = "parameter" if changed[0] in dict(self.model.named_parameters()) else "buffer"
            raise InputError(
                f"the model's {what} {changed[0]} changes while it trains, and would be released without noise; use "
                "layers without state (group norm), or feed public inputs first"
            )

    def with_public_inputs(self) -> list[nn.Module]:
        """The model, or the parts of it, that have public inputs for their norm layers."""
        return _with_public_inputs(self.model)

    def _named_untrained(self) -> dict[str, Tensor]:
        """Parameters and buffers that are not trained, one that is shared under its first name."""
        found, seen = {}, {id(parameter) for parameter in self.parameters}
        for part, parameters, buffers in self._registered:
            for name, tensor in (*parameters.items(), *buffers.items()):
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    found[_joined(self._names[id(part)], name)] = tensor
        return found

    def _public_statistics(self) -> set[str]:
        """Names of buffers that are computed from public inputs and the weights."""
        layers = {
            id(layer)
            for part in self.with_public_inputs()
            for layer in part.modules()
            if isinstance(layer, PublicBatchNorm)
        }
        return {
            _joined(name, buffer)
            for name, layer in self.model.named_modules()
            if id(layer) in layers
            for buffer in ("mean", "variance")
        }


def copied(model: nn.Module, *, sharing: Sequence[nn.Parameter] = ()) -> nn.Module:
    """A copy of the user's module, which may be tried out and changed.

    Args:
        model: the user's module.
        sharing: parameters that the copy has in common with it.

    Raises:
        InputError: it holds something that cannot be copied.
    """
    try:
        return copy.deepcopy(model, {id(parameter): parameter for parameter in sharing})
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
    for name, parameter in named:
        if parameter.dtype != named[0][1].dtype:
            raise InputError(
                f"parameter {named[0][0]} is {named[0][1].dtype} and {name} is {parameter.dtype}; convert the "
                "model to one precision, model.float() for example, or freeze one of the two"
            )
    chosen = {id(parameter) for _, parameter in named}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in chosen)
    return named


def _local_parameters(model: nn.Module, named: list[tuple[str, nn.Parameter]], pattern: str) -> dict[str, nn.Parameter]:
    """Those of the parameters that are each contributor's own."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise InputError(f"local parameters: {pattern!r} is no regular expression: {error}") from None
    found = {name: parameter for name, parameter in named if wanted.fullmatch(name)}
    first = {id(parameter): name for name, parameter in named}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        known = first.get(id(parameter), name)
        if (known in found) != bool(wanted.fullmatch(name)) and id(parameter) in first:
            raise InputError(
                f"{known} and {name} are one parameter, and local parameters: {pattern!r} names one of them alone; "
                "name both, or untie them"
            )
    if found and len(found) < len(named):
        return found
    names = ", ".join(name for name, _ in named[:_SHOWN]) + (", …" if len(named) > _SHOWN else "")
    if not found:
        raise InputError(f"local parameters: {pattern!r} names none of the parameters that are trained: {names}")
    raise InputError(
        f"local parameters: {pattern!r} names all parameters that are trained, so nothing would be learned together; "
        f"leave some of these out: {names}"
    )


def _with_public_inputs(model: nn.Module) -> list[nn.Module]:
    if not any(isinstance(part, PublicBatchNorm) for part in model.modules()):
        return []  # what else the model holds reads no public inputs
    return [part for part in model.modules() if public_inputs_of(part) is not None]


def _joined(part: str, name: str) -> str:
    return f"{part}.{name}" if part else name
