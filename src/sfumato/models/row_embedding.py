"""A table of embeddings whose rows are kept elsewhere, so that a step touches those only that it reads.

It stands for an `nn.Embedding` while a model trains with deferred noise (`sfumato.mechanisms.deferred`). What reads its
rows catches up with the noise that they are owed; there is no tensor of the whole table in the model. Before any row is
read, the model is tried out with a few placeholder rows, the table's first ones: an id is then taken modulo their
number.

>>> table = RowEmbedding(nn.Embedding(1_000_000, 2), Reader())
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


class RowEmbedding(nn.Embedding):
    """Looks up rows that a reader gives.

    Args:
        like: the layer that it stands for; its weight is not copied.
        reader: of the rows.

    Attributes:
        weight: float [placeholders, d], the placeholder rows.
    """

    def __init__(self, like: nn.Embedding, reader: Reader) -> None:
        rows, width = like.weight.shape
        first = like.weight.detach()[:PLACEHOLDERS].clone()
        # made with few rows: the whole table would be allocated, and filled, for nothing
        super().__init__(len(first), width, _weight=first)
        self.num_embeddings, self.padding_idx = rows, like.padding_idx
        self.reader = reader

    @property
    def live(self) -> bool:
        """Whether rows are read, and not their placeholders."""
        return self.reader.live

    def places(self, ids: Tensor) -> Tensor:
        """The rows that ids stand for: themselves, or placeholders.

        Raises:
            IndexError: an id that the table has no row for, as torch's own layer raises it.
        """
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= self.num_embeddings):
            raise IndexError("index out of range in self")
        return ids if self.live else ids.remainder(len(self.weight))

    def forward(self, input: Tensor) -> Tensor:
        """Rows [..., d] of ids [...]."""
        places = self.places(input)
        if not self.live or self.reader.read is None:
            return functional.embedding(places, self.weight, self._padding())
        ids, which = torch.unique(places, return_inverse=True)
        return functional.embedding(which, self.reader.read(ids).to(self.weight))

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """The whole table: a file that somebody writes must not show which rows lack noise."""
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[no-untyped-call]
        if self.live and self.reader.whole is not None:
            destination[prefix + "weight"] = self.reader.whole()

    def _padding(self) -> int | None:
        padding = self.padding_idx
        return padding if padding is not None and padding < len(self.weight) else None
