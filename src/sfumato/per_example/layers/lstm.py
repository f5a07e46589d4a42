"""The time steps of an LSTM, forward and backward, by hand: one matrix product and a few operations a step.

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

from typing import Any

import torch
from torch import Tensor

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
