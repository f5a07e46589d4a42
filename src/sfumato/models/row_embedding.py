"""Tables of embeddings whose rows are kept elsewhere, so that a step touches those only that it reads.

They stand for `nn.Embedding` and `nn.EmbeddingBag` while a model trains with deferred noise
(`sfumato.mechanisms.deferred`). What reads their rows catches up with the noise that they are owed; there is no tensor
of the whole table in the model. Before any row is read, the model is tried out with a few placeholder rows, the table's
first ones: an id is then taken modulo their number.

>>> layer = nn.Embedding(1_000_000, 2)
>>> table = by_rows(layer, Reader(), layer.weight.detach()[:PLACEHOLDERS].clone())
>>> table, table.weight.shape
(RowEmbedding(1000000, 2), torch.Size([256, 2]))
>>> table(torch.tensor([3, 259])).unique(dim=0).shape  # tried out: one row for both
torch.Size([1, 2])
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError

PLACEHOLDERS = 256

Table = nn.Embedding | nn.EmbeddingBag


@dataclass(eq=False)
class Reader:
    """Where a table's rows come from.

    Attributes:
        read: float [n, d] from int64 [n], ids in rising order without repetition.
        whole: the table, float [V, d], with the noise of all rows.
        live: whether rows are read; otherwise the placeholder rows stand for them.
    """

    read: Callable[[Tensor], Tensor] | None = None
    whole: Callable[[], Tensor] | None = None
    live: bool = False

    def __deepcopy__(self, _: Any) -> Self:
        """Copies of a model read from one table."""
        return self

    def __reduce__(self) -> NoReturn:
        """A file of the whole module would hold the run's key, and rows that lack noise."""
        raise InputError("a model whose rows are read from a run cannot be saved as a whole; save its state_dict()")


class _ByRows(nn.Module):
    """What both kinds of tables have in common.

    Attributes:
        weight: float [placeholders, d], the placeholder rows.
        reader: of the rows.
    """

    weight: nn.Parameter
    num_embeddings: int
    padding_idx: int | None
    reader: Reader

    @property
    def live(self) -> bool:
        """Whether rows are read, and not their placeholders."""
        return self.reader.live

    def places(self, ids: Tensor) -> Tensor:
        """The rows that ids which went through stand for: themselves, or placeholders."""
        return ids if self.live else ids.remainder(len(self.weight))

    def looked_up(self, ids: Tensor) -> tuple[Tensor, Tensor, int | None]:
        """For some ids [...] their places [...] in rows [n, d], these rows, and which of them is for padding.

        Raises:
            IndexError: an id that the table has no row for, as torch's own layers raise it.
        """
        read, which = torch.unique(ids, return_inverse=True)  # in rising order
        if len(read) and (int(read[0]) < 0 or int(read[-1]) >= self.num_embeddings):
            raise IndexError("index out of range in self")
        padding = self.padding_idx
        if not self.live or self.reader.read is None:
            return self.places(ids), self.weight, None if padding is None or padding >= len(self.weight) else padding
        if padding is not None:
            at = int(torch.searchsorted(read, padding))
            padding = at if at < len(read) and int(read[at]) == padding else None
        return which, self.reader.read(read).to(self.weight), padding

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """The whole table: a file that somebody writes must not show which rows lack noise."""
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[no-untyped-call]
        if self.live and self.reader.whole is not None:
            destination[prefix + "weight"] = self.reader.whole()


class RowEmbedding(_ByRows, nn.Embedding):
    """Looks up rows that a reader gives."""

    def forward(self, input: Tensor) -> Tensor:
        """Rows [..., d] of ids [...]."""
        return functional.embedding(*self.looked_up(input))


class RowEmbeddingBag(_ByRows, nn.EmbeddingBag):
    """Adds up, or averages, rows that a reader gives."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """One row [B, d] of each bag: ids [B, T], or ids [n] with the place [B] where each bag begins."""
        which, rows, padding = self.looked_up(input)
        return functional.embedding_bag(
            which,
            rows,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )


def by_rows(like: Table, reader: Reader, first: Tensor) -> RowEmbedding | RowEmbeddingBag:
    """A table that stands for another one.

    Args:
        like: the layer that it stands for.
        reader: of its rows.
        first: float [placeholders, d], the placeholder rows; taken over.
    """
    # made with few rows: the whole table would be allocated, and filled, for nothing
    made = _made(like, first, RowEmbedding, RowEmbeddingBag)
    assert isinstance(made, RowEmbedding | RowEmbeddingBag)
    made.num_embeddings, made.padding_idx, made.reader = like.num_embeddings, like.padding_idx, reader
    return made


def ordinary(like: Table, weight: Tensor) -> Table:
    """One of torch's own layers with this weight, float [V, d], instead of one that reads rows."""
    made = _made(like, weight, nn.Embedding, nn.EmbeddingBag)
    made.padding_idx = like.padding_idx
    return made


def _made(like: Table, weight: Tensor, kind: type[nn.Embedding], bags: type[nn.EmbeddingBag]) -> Table:
    rows, width = weight.shape
    if isinstance(like, nn.Embedding):
        return kind(rows, width, _weight=weight)
    return bags(rows, width, mode=like.mode, include_last_offset=like.include_last_offset, _weight=weight)
