"""`nn.LSTM`, `nn.GRU` and `nn.RNN`: any number of layers, both directions, packed sequences.

While a backward pass is recorded, the layer's forward pass is computed here, step by step, so that the gradients of
the gates' pre-activations can be seen. They are all that is needed: the input weights get outer products with the
inputs, the recurrent ones with the previous states. Each layer and direction shows one tensor for all time steps.

A packed sequence is unrolled on its padded rectangle; behind its end, a sequence keeps its state and adds nothing.

The time steps of an LSTM, forward and backward, by hand: one matrix product and a few operations a step.

Autograd would keep and call a dozen small nodes a step. Here the gates' derivatives are computed for some steps at
once, while they are in the cache, and the backward loop is left with what must be sequential:

    dh[t] = gradient[t] + dz[t+1] W,   dc[t] = dc[t+1] f[t+1] + dh[t] o[t] (1 - tanh(c[t])^2),
    dz[t] = (dc g i (1 - i), dc c[t-1] f (1 - f), dc i (1 - g^2), dh tanh(c) o (1 - o)).

References:
    Hochreiter and Schmidhuber: Long short-term memory (1997), in the form with forget gates of torch.nn.LSTM.

Only the gate g is felt where all else is zero, as c = i g and h = o tanh(c):

>>> z, zero = torch.zeros(1, 1, 4, requires_grad=True), torch.zeros(1, 1)
>>> hidden, cell = Steps.apply(z, zero, zero, torch.zeros(4, 1))
>>> hidden.sum().backward(); z.grad.tolist()
[[[0.0, 0.0, 0.25, 0.0]]]
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sfumato._check import InputError
from sfumato.per_example.rule import Dense, Factors, Layer, Outer, Rule, Tap

_AT_ONCE = 1 << 18  # numbers of the gates whose derivatives are computed together


class Steps(torch.autograd.Function):
    """(z [T, B, 4H], h0 [B, H], c0 [B, H], W [4H, H]) → (h [T + 1, B, H] from h0 on, last c [B, H]).

    z holds inputs and biases of the gates i, f, g, o before the recurrent part; W gets no gradient.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        steps, examples, _ = z.shape
        width = weight.shape[1]
        gates = torch.empty_like(z)
        cells = z.new_empty(steps + 1, examples, width)
        tanhs = z.new_empty(steps, examples, width)
        hiddens = z.new_empty(steps + 1, examples, width)
        hiddens[0], cells[0] = hidden, cell
        transposed = weight.T
        before, now = hiddens[0], cells[0]
        rows = zip(z.unbind(), gates.unbind(), cells.unbind()[1:], tanhs.unbind(), hiddens.unbind()[1:], strict=True)
        for given, gate, next_cell, tanh, next_hidden in rows:
            torch.addmm(given, before, transposed, out=gate)
            gate[:, : 2 * width].sigmoid_()
            first, forget, new, out = gate.split(width, dim=1)
            new.tanh_()
            out.sigmoid_()
            now = torch.mul(forget, now, out=next_cell).addcmul_(first, new)
            before = torch.mul(out, torch.tanh(now, out=tanh), out=next_hidden)
        ctx.save_for_backward(gates, cells, tanhs, weight)
        return hiddens, now.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_hiddens: Tensor, of_cell: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gates, cells, tanhs, weight = ctx.saved_tensors
        steps, examples, width = tanhs.shape
        of_z = torch.empty_like(gates)
        cell, hidden = of_cell.clone(), of_hiddens[steps].clone()
        chunk = min(steps, max(1, _AT_ONCE // (4 * width * max(1, examples))))
        slopes = gates.new_empty(chunk, examples, 4 * width)
        through = gates.new_empty(chunk, examples, width)
        for end in range(steps, 0, -chunk):
            start = max(0, end - chunk)
            _derivatives(gates[start:end], cells[start:end], tanhs[start:end], slopes, through)
            for step in range(end - 1, start - 1, -1):
                place = step - start
                cell.addcmul_(hidden, through[place])
                row, slope = of_z[step].view(examples, 4, width), slopes[place].view(examples, 4, width)
                torch.mul(cell[:, None], slope[:, :3], out=row[:, :3])
                torch.mul(hidden, slope[:, 3], out=row[:, 3])
                cell.mul_(gates[step, :, width : 2 * width])
                torch.addmm(of_hiddens[step], of_z[step], weight, out=hidden)
        return of_z, hidden, cell, None


def _derivatives(gates: Tensor, cells: Tensor, tanhs: Tensor, slopes: Tensor, through: Tensor) -> None:
    """What dc (for i, f, g) and dh (for o) are multiplied by, [T, B, 4H], and the cell's derivative by h, [T, B, H]."""
    slopes, through = slopes[: len(gates)], through[: len(gates)]
    width = tanhs.shape[2]
    first, _, new, out = gates.split(width, dim=2)
    torch.mul(gates, gates, out=slopes)
    torch.sub(gates, slopes, out=slopes)
    of_first, of_forget, of_new, of_out = slopes.split(width, dim=2)
    of_first.mul_(new)
    of_forget.mul_(cells)
    torch.mul(new, new, out=of_new).neg_().add_(1).mul_(first)
    of_out.mul_(tanhs)
    torch.mul(tanhs, tanhs, out=through).neg_().add_(1).mul_(out)


Recurrent = nn.LSTM | nn.GRU | nn.RNN
States = tuple[Tensor, ...]  # (h,) or (h, c), each [B, H]


class RecurrentRule(Rule):
    """Weights [gates H, D] and [gates H, H] and two biases, for each layer and direction."""

    path: ClassVar[str] = "one backward pass over its own time steps"

    def refusal(self, module: Recurrent) -> str:
        return "proj_size is not covered; use proj_size=0 and a linear layer" if module.proj_size else ""

    def attach(self, layer: Layer[Any], tap: Tap) -> Callable[[], None]:
        module = layer.module

        def forward(values: Tensor | PackedSequence, initial: Any = None) -> tuple[Any, Any]:
            return _run(layer, tap, values, initial)

        module.forward = forward  # on this instance only, and until the recording ends

        def detach() -> None:
            del module.forward

        return detach


def _run(layer: Layer[Any], tap: Tap, values: Tensor | PackedSequence, initial: Any) -> tuple[Any, Any]:
    module = layer.module
    packed = values if isinstance(values, PackedSequence) else None
    if packed is not None:
        inputs, lengths = pad_packed_sequence(packed, batch_first=True)
    else:
        assert isinstance(values, Tensor)
        if values.dim() != 3:
            raise InputError(f"a recurrent layer takes examples in a batch, [B, T, D], got shape {list(values.shape)}")
        inputs, lengths = (values if module.batch_first else values.transpose(0, 1)), None
    states = _initial(module, inputs, initial)
    directions = 2 if module.bidirectional else 1
    finals: list[States] = []
    for level in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{level}" + ("_reverse" if direction else "")
            start = tuple(state[level * directions + direction] for state in states)
            reversed_inputs = _reversed(inputs, lengths) if direction else inputs
            out, final = _unroll(layer, tap, suffix, reversed_inputs, start, lengths)
            outputs.append(_reversed(out, lengths) if direction else out)
            finals.append(final)
        inputs = torch.cat(outputs, dim=2) if directions == 2 else outputs[0]
        if module.dropout and level < module.num_layers - 1:
            inputs = nn.functional.dropout(inputs, module.dropout, module.training)
    last = tuple(torch.stack(column) for column in zip(*finals, strict=True))
    hidden = last if isinstance(module, nn.LSTM) else last[0]
    if packed is None:
        return (inputs if module.batch_first else inputs.transpose(0, 1)), hidden
    assert lengths is not None
    return pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False), hidden


def _initial(module: Any, inputs: Tensor, given: Any) -> States:
    count = module.num_layers * (2 if module.bidirectional else 1)
    kinds = 2 if isinstance(module, nn.LSTM) else 1
    if given is None:
        zeros = inputs.new_zeros(count, len(inputs), module.hidden_size)
        return (zeros,) * kinds
    return tuple(given) if kinds == 2 else (given,)


def _reversed(values: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence backwards, the padding left where it is."""
    if lengths is None:
        return values.flip(1)
    steps = torch.arange(values.shape[1])
    index = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps).to(values.device)
    return values.gather(1, index[:, :, None].expand_as(values))


def _unroll(
    layer: Layer[Any], tap: Tap, suffix: str, inputs: Tensor, states: States, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """One layer in one direction: its outputs [B, T, H] and last states."""
    module = layer.module
    weights: dict[str, Tensor | None] = {
        name: getattr(module, f"{name}{suffix}", None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    outputs: list[Tensor] = []
    first = states[0]
    before: list[Tensor] = []  # detached: what the graph holds must not hold the graph, which would never be freed

    def previous() -> Tensor:
        return before[0]

    names_ih, names_hh = (f"weight_ih{suffix}", f"bias_ih{suffix}"), (f"weight_hh{suffix}", f"bias_hh{suffix}")

    def of_inputs(gradient: Tensor) -> Factors:
        return _factors(layer, "ih", suffix, gradient, lambda: inputs.detach())

    def of_states(gradient: Tensor) -> Factors:
        return _factors(layer, "hh", suffix, gradient, previous)

    def of_both(gradient: Tensor) -> Factors:
        return of_inputs(gradient) | of_states(gradient)

    weight_ih, weight_hh = weights["weight_ih"], weights["weight_hh"]
    assert weight_ih is not None
    assert weight_hh is not None
    mixed = torch.is_autocast_enabled(inputs.device.type)
    if isinstance(module, nn.LSTM) and lengths is None and inputs.shape[1] and not mixed:
        return _unrolled_lstm(layer, tap, suffix, inputs, states)
    from_inputs = nn.functional.linear(inputs, weight_ih, weights["bias_ih"])
    if isinstance(module, nn.GRU):  # the reset gate multiplies what comes from the state: its gradient is another one
        from_inputs = tap(from_inputs, of_inputs, names_ih)
        from_states = tap(torch.zeros_like(from_inputs).detach(), of_states, names_hh)
        if weights["bias_hh"] is not None:
            from_states = from_states + weights["bias_hh"]
        steps = zip(from_inputs.unbind(1), from_states.unbind(1), strict=True)
    else:
        if weights["bias_hh"] is not None:
            from_inputs = from_inputs + weights["bias_hh"]
        steps = ((step, None) for step in tap(from_inputs, of_both, names_ih + names_hh).unbind(1))
    step_of = _cell(module)
    for index, (step, extra) in enumerate(steps):
        new = step_of(step, extra, states, weight_hh)
        if lengths is not None:
            inside = (index < lengths).to(step.device)[:, None]
            new = tuple(torch.where(inside, fresh, old) for fresh, old in zip(new, states, strict=True))
        states = new
        outputs.append(states[0])
    stacked = torch.stack(outputs, dim=1)
    before.append(torch.cat([first.detach()[:, None], stacked.detach()[:, :-1]], dim=1))
    if lengths is not None:
        inside = (torch.arange(stacked.shape[1]) < lengths[:, None]).to(stacked.device)
        stacked = stacked * inside[:, :, None]
    return stacked, states


def _unrolled_lstm(layer: Layer[Any], tap: Tap, suffix: str, inputs: Tensor, states: States) -> tuple[Tensor, States]:
    """The same for an LSTM whose sequences are equally long."""
    module = layer.module
    names = [f"{part}{suffix}" for part in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")]
    bias = getattr(module, names[1], None)
    if bias is not None:
        bias = bias + getattr(module, names[3])
    first = inputs.transpose(0, 1).contiguous()  # time first: every step is one block of memory
    z = nn.functional.linear(first, getattr(module, names[0]), bias).transpose(0, 1)
    before: list[Tensor] = []

    def factors(gradient: Tensor) -> Factors:
        result: Factors = {}
        for name, right in ((names[0], first.detach()), (names[2], before[0])):
            if name in layer.wanted:
                result[name] = Outer(gradient, right.transpose(0, 1).to(gradient.dtype))
        biases = [name for name in (names[1], names[3]) if name in layer.wanted]
        if biases:
            result |= dict.fromkeys(biases, Dense(gradient.sum(dim=1)))
        return result

    z = tap(z, factors, names)
    hiddens, cell = Steps.apply(z.transpose(0, 1), *states, getattr(module, names[2]))  # type: ignore[misc]
    before.append(hiddens[:-1].detach())
    return hiddens[1:].transpose(0, 1), (hiddens[-1], cell)


def _factors(layer: Layer[Any], part: str, suffix: str, gradient: Tensor, right: Callable[[], Tensor]) -> Factors:
    weight, bias = f"weight_{part}{suffix}", f"bias_{part}{suffix}"
    result: Factors = {}
    if weight in layer.wanted:
        result[weight] = Outer(gradient, right().to(gradient.dtype))
    if bias in layer.wanted:
        result[bias] = Dense(gradient.sum(dim=1))
    return result


def _cell(module: Any) -> Callable[[Tensor, Tensor | None, States, Tensor], States]:
    if isinstance(module, nn.LSTM):
        return _lstm
    if isinstance(module, nn.GRU):
        return _gru
    return _tanh if module.nonlinearity == "tanh" else _relu


def _lstm(step: Tensor, _: Tensor | None, states: States, weight: Tensor) -> States:
    hidden, cell = states
    first, forget, new, out = torch.addmm(step, hidden, weight.T).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + first.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _gru(step: Tensor, extra: Tensor | None, states: States, weight: Tensor) -> States:
    assert extra is not None
    (hidden,) = states
    reset, update, new = step.chunk(3, dim=1)
    reset_h, update_h, new_h = torch.addmm(extra, hidden, weight.T).chunk(3, dim=1)
    reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
    new = (new + reset * new_h).tanh()
    return (new + update * (hidden - new),)


def _tanh(step: Tensor, _: Tensor | None, states: States, weight: Tensor) -> States:
    return (torch.addmm(step, states[0], weight.T).tanh(),)


def _relu(step: Tensor, _: Tensor | None, states: States, weight: Tensor) -> States:
    return (torch.addmm(step, states[0], weight.T).relu(),)
