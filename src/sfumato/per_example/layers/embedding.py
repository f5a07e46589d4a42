"""`nn.Embedding` and `nn.EmbeddingBag`: rows of a table, equal ids within an example merged; never a table an example.

>>> import torch
>>> layer = Layer("words", nn.Embedding(5, 2), EmbeddingRule(), frozenset({"weight"}))
>>> ids, gradient = torch.tensor([[4, 4, 1]]), torch.tensor([[[1.0, 0], [2.0, 0], [0, 1.0]]])
>>> layer.rule.factors(layer, ids, gradient)["weight"].squared_norms().tolist()      # (1 + 2)^2 for row 4, 1 for row 1
[10.0]
"""

from typing import Any, ClassVar

from torch import Tensor, nn

from sfumato.per_example.factor import Rows
from sfumato.per_example.rule import Factors, Layer, OutputRule


class EmbeddingRule(OutputRule):
    """A table [V, d]; the padding row gets no gradient."""

    leading: ClassVar[bool] = True

    def refusal(self, module: nn.Embedding) -> str:
        if module.scale_grad_by_freq:
            return "scale_grad_by_freq divides by counts over the whole batch; use scale_grad_by_freq=False"
        return ""

    def factors(self, layer: Layer[nn.Embedding], saved: Tensor, gradient: Tensor) -> Factors:
        module = layer.module
        ids = saved.reshape(len(saved), -1)
        rows = gradient.reshape(len(saved), -1, gradient.shape[-1])
        if module.padding_idx is not None:
            rows = rows.masked_fill((ids == module.padding_idx)[:, :, None], 0.0)
        return {"weight": Rows(ids, rows, module.num_embeddings)}


class EmbeddingBagRule(OutputRule):
    """Bags of equal length, ids [B, T], summed or averaged, with or without weights."""

    def refusal(self, module: nn.EmbeddingBag) -> str:
        if module.scale_grad_by_freq:
            return "scale_grad_by_freq divides by counts over the whole batch; use scale_grad_by_freq=False"
        if module.mode == "max":
            return 'mode "max" is not covered; use "sum" or "mean"'
        return ""

    def save(self, module: nn.EmbeddingBag, inputs: tuple[Any, ...], output: Tensor) -> tuple[Any, ...]:
        return inputs

    def factors(self, layer: Layer[nn.EmbeddingBag], saved: tuple[Any, ...], gradient: Tensor) -> Factors:
        module = layer.module
        ids: Tensor = saved[0]
        offsets, weights = (*saved[1:], None, None)[:2]
        if offsets is not None:
            ids, weights = _rectangle(ids, offsets, weights, module)
        elif weights is None:
            weights = gradient.new_ones(ids.shape)
        if module.padding_idx is not None:
            weights = weights * (ids != module.padding_idx)
        if module.mode == "mean":
            weights = weights / weights.count_nonzero(dim=1).clamp(min=1)[:, None]
        return {"weight": Rows(ids, gradient[:, None, :] * weights[:, :, None], module.num_embeddings)}


def _rectangle(ids: Tensor, offsets: Tensor, weights: Tensor | None, module: nn.EmbeddingBag) -> tuple[Tensor, Tensor]:
    """Ragged bags as a rectangle with weight zero where there is nothing."""
    starts = offsets[:-1] if module.include_last_offset else offsets
    ends = offsets[1:] if module.include_last_offset else offsets.new_tensor([*offsets[1:].tolist(), len(ids)])
    lengths = ends - starts
    steps = offsets.new_zeros(0).new_tensor(range(int(lengths.max()) if len(lengths) else 0))
    inside = steps[None, :] < lengths[:, None]
    places = (starts[:, None] + steps[None, :]).clamp(max=max(0, len(ids) - 1))
    given = inside.to(module.weight.dtype) if weights is None else weights[places] * inside
    return ids[places] * inside, given
