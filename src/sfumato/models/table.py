"""Click models: an embedding for each categorical column, numbers next to them, dense layers.

`ctr_model` is that of Denison et al. (2022): all side by side through 4 x 598 units. `dlrm` is that of Naumov et al.
(2019), with the products of every two embeddings.

In the first, a table of V rows has int(2 V^0.25) numbers a row; in the second all tables have as many. V is public: the
number of hash buckets, or the size of a public vocabulary, never a count over the private data. An id from V on shares
a row (id modulo V), so no table grows with what is in the data. Numeric columns come as they are or, with
`log_numeric`, as sign(x) log(1 + |x|): a fixed map, without statistics. Activations are ReLU. One output is the logit
of a click, or the logarithm of an expected count. No layer couples examples.

A category of several values a row (a bag) has several columns of ids and one table. The model takes the mean of the
rows of its ids that are not 0, or row 0 where all are. In `vocabulary_sizes` a 0 stands for each further id of the
column before.

References:
    Denison, Ghazi, Kamath, Kumar, Manurangsi, Narra, Sinha, Varadarajan, Zhang: Private Ad Modeling with DP-SGD (2022),
    arXiv 2211.11896, section 3.
    Naumov et al.: Deep Learning Recommendation Model for Personalization and Recommendation Systems (2019),
    arXiv 1906.00091. Argument names are those of TorchRec.

>>> model = ctr_model(vocabulary_sizes=1000)
>>> model.tables[0].weight.shape, sum(parameter.numel() for parameter in model.parameters())
(torch.Size([1000, 11]), 1540605)
>>> model(torch.zeros(2, 13), torch.zeros(2, 26, dtype=torch.int64)).shape
torch.Size([2, 1])
>>> bags = ctr_model(vocabulary_sizes=[50, 80, 0, 0])  # one id, and up to three
>>> bags.lengths, bags(torch.zeros(2, 13), torch.zeros(2, 4, dtype=torch.int64)).shape
((1, 3), torch.Size([2, 1]))
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers import glorot, refuse_no_units, sequence_layers

_COLUMNS = 26  # categorical columns of the Criteo format
_NUMERIC = 13


def embedding_width(rows: int) -> int:
    """Numbers in a row of a table: int(2 V^0.25), from its public number of rows.

    >>> embedding_width(1), embedding_width(16), embedding_width(10_000_000)
    (2, 4, 112)
    """
    whole(rows=rows)
    return int(2 * rows**0.25)


class _TableModel(nn.Module):
    """The columns of a table as a network reads them: numbers, and a row of an embedding for each category.

    Args:
        numeric: numeric columns.
        sizes: rows of the table of each column of ids; 0 for a further id of the column before.
        width: numbers in a row, by the rows of its table.
        log_numeric: whether to take logarithms of the numbers.
    """

    sizes: torch.Tensor

    def __init__(self, *, numeric: int, sizes: Sequence[int], width: Callable[[int], int], log_numeric: bool) -> None:
        super().__init__()
        self.numeric, self.log_numeric = numeric, log_numeric
        starts = [column for column, rows in enumerate(sizes) if rows]
        tables = [sizes[start] for start in starts]
        self.lengths = tuple(end - start for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True))
        of_columns = [rows for rows, length in zip(tables, self.lengths, strict=True) for _ in range(length)]
        self.register_buffer("sizes", torch.tensor(of_columns, dtype=torch.int64), persistent=False)
        self.tables = nn.ModuleList(nn.Embedding(rows, width(rows)) for rows in tables)

    def columns_of(self, numbers: torch.Tensor, categories: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The numbers, float [n, a], and the rows of each table, float [n, d]."""
        if numbers.shape[1:] != (self.numeric,) or categories.shape[1:] != self.sizes.shape:
            raise InputError(
                f"this model reads [n, {self.numeric}] numbers and [n, {len(self.sizes)}] categories, "
                f"got {list(numbers.shape)} and {list(categories.shape)}; build it for the columns of the table"
            )
        if self.log_numeric:
            numbers = numbers.sign() * numbers.abs().log1p()
        bags = categories.remainder(self.sizes).split(self.lengths, dim=1)
        return numbers, [_rows_of(table, bag) for table, bag in zip(self.tables, bags, strict=True)]


class CTRModel(_TableModel):
    """Embeddings and numbers, side by side, through dense layers; see `ctr_model`."""

    def __init__(
        self, *, num_outputs: int, numeric: int, sizes: Sequence[int], hidden: Sequence[int], log_numeric: bool
    ) -> None:
        super().__init__(numeric=numeric, sizes=sizes, width=embedding_width, log_numeric=log_numeric)
        width = numeric + sum(embedding_width(rows) for rows in sizes if rows)
        self.dense = _dense(width, hidden)
        self.classifier = nn.Linear(hidden[-1], num_outputs)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """Map float [n, a] and int64 [n, b] to float [n, num_outputs]."""
        numbers, rows = self.columns_of(numbers, categories)
        return self.classifier(self.dense(torch.cat([numbers, *rows], dim=1)))


class DLRM(_TableModel):
    """Numbers through layers of their own, and products of every two of what columns give; see `dlrm`."""

    pairs: torch.Tensor

    def __init__(
        self,
        *,
        num_outputs: int,
        numeric: int,
        sizes: Sequence[int],
        embedding_dim: int,
        dense_arch_layer_sizes: Sequence[int],
        over_arch_layer_sizes: Sequence[int],
        log_numeric: bool,
    ) -> None:
        super().__init__(numeric=numeric, sizes=sizes, width=lambda _: embedding_dim, log_numeric=log_numeric)
        self.dense_arch = _dense(numeric, (*dense_arch_layer_sizes, embedding_dim)) if numeric else None
        vectors = len(self.tables) + (numeric > 0)
        pairs = torch.triu_indices(vectors, vectors, offset=1)
        self.register_buffer("pairs", pairs, persistent=False)
        width = pairs.shape[1] + (embedding_dim if numeric else 0)
        self.over_arch = _dense(width, over_arch_layer_sizes)
        self.classifier = nn.Linear(over_arch_layer_sizes[-1], num_outputs)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """Map float [n, a] and int64 [n, b] to float [n, num_outputs]."""
        numbers, rows = self.columns_of(numbers, categories)
        dense = [] if self.dense_arch is None else [self.dense_arch(numbers)]
        vectors = torch.stack([*dense, *rows], dim=1)
        one, other = self.pairs
        products = (vectors @ vectors.transpose(1, 2))[:, one, other]
        return self.classifier(self.over_arch(torch.cat([*dense, products], dim=1)))


def _dense(width: int, sizes: Sequence[int]) -> nn.Sequential:
    """Dense layers of some sizes, each with a ReLU."""
    layers: list[nn.Module] = []
    for units in sizes:
        layers += [nn.Linear(width, units), nn.ReLU(inplace=True)]
        width = units
    return nn.Sequential(*layers)


def _rows_of(table: nn.Module, bag: torch.Tensor) -> torch.Tensor:
    """The mean row of the ids that are not 0, of int64 [n, k] → float [n, d]; row 0 where all are 0."""
    if bag.shape[1] == 1:
        return table(bag[:, 0])
    largest = bag.amax(dim=1, keepdim=True)  # in place of 0, so that an example reads no row besides its own
    counted = (bag != 0) | (largest == 0)
    rows = table(torch.where(counted, bag, largest))
    weights = counted.to(rows.dtype)
    return (rows * (weights / weights.sum(dim=1, keepdim=True))[:, :, None]).sum(dim=1)


def ctr_model(
    num_outputs: int = 1,
    *,
    vocabulary_sizes: int | Sequence[int],
    numeric: int = _NUMERIC,
    columns: int = _COLUMNS,
    hidden: Sequence[int] = (598, 598, 598, 598),
    log_numeric: bool = False,
    generator: torch.Generator | None = None,
) -> CTRModel:
    """Build a click model with Glorot-uniform dense layers.

    Args:
        num_outputs: 1 for a click or a count; the number of classes for a softmax.
        vocabulary_sizes: public rows of each table, or one number for all; an id from there on shares a row. A 0 is a
            further id of the column before.
        numeric: numeric columns, >= 0.
        columns: categorical columns where `vocabulary_sizes` is one number, >= 1.
        hidden: units of the hidden layers.
        log_numeric: whether to take logarithms of the numeric columns; not if the reader has done so.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1 (numeric, and all but the first of the vocabularies: >= 0), or
            there is no hidden layer.
    """
    refuse_no_units(hidden=hidden)
    sizes = _sizes(vocabulary_sizes, columns, numeric=numeric, num_outputs=num_outputs, layers=hidden)
    model = CTRModel(num_outputs=num_outputs, numeric=numeric, sizes=sizes, hidden=hidden, log_numeric=log_numeric)
    glorot(model, generator)
    sequence_layers(model, generator)
    return model


def dlrm(
    num_outputs: int = 1,
    *,
    vocabulary_sizes: int | Sequence[int],
    numeric: int = _NUMERIC,
    columns: int = _COLUMNS,
    embedding_dim: int = 16,
    dense_arch_layer_sizes: Sequence[int] = (512, 256, 64),
    over_arch_layer_sizes: Sequence[int] = (512, 256),
    log_numeric: bool = False,
    generator: torch.Generator | None = None,
) -> DLRM:
    """Build the DLRM of Naumov et al. (2019), by default with their sizes for Criteo's data.

    Args:
        num_outputs, vocabulary_sizes, numeric, columns, log_numeric, generator: as for `ctr_model`.
        embedding_dim: numbers in a row of each table, and what the layers of the numbers end with.
        dense_arch_layer_sizes: units of the layers of the numbers, before the last one.
        over_arch_layer_sizes: units of the layers after the products.

    Raises:
        InputError: as for `ctr_model`, or there is only one vector, so that there is no product.

    >>> dlrm(vocabulary_sizes=1000)(torch.zeros(2, 13), torch.zeros(2, 26, dtype=torch.int64)).shape
    torch.Size([2, 1])
    """
    whole(embedding_dim=embedding_dim)
    refuse_no_units(dense_arch_layer_sizes=dense_arch_layer_sizes, over_arch_layer_sizes=over_arch_layer_sizes)
    sizes = _sizes(vocabulary_sizes, columns, numeric=numeric, num_outputs=num_outputs, layers=over_arch_layer_sizes)
    if sum(rows > 0 for rows in sizes) + (numeric > 0) < 2:
        raise InputError("dlrm multiplies columns with each other and needs two of them; use ctr")
    model = DLRM(
        num_outputs=num_outputs,
        numeric=numeric,
        sizes=sizes,
        embedding_dim=embedding_dim,
        dense_arch_layer_sizes=dense_arch_layer_sizes,
        over_arch_layer_sizes=over_arch_layer_sizes,
        log_numeric=log_numeric,
    )
    glorot(model, generator)
    sequence_layers(model, generator)
    return model


def _sizes(
    vocabulary_sizes: int | Sequence[int], columns: int, *, numeric: int, num_outputs: int, layers: Sequence[int]
) -> list[int]:
    """Rows of the table of each column of ids, checked, as the other numbers are but for the units of the layers."""
    whole(num_outputs=num_outputs, columns=columns)
    whole(at_least=0, numeric=numeric)
    sizes = [vocabulary_sizes] * columns if isinstance(vocabulary_sizes, int) else list(vocabulary_sizes)
    for column, rows in enumerate(sizes):
        whole(at_least=0 if column else 1, vocabulary_sizes=rows)
    if not sizes or not layers:
        raise InputError("a click model needs at least one categorical column and one hidden layer; use a linear model")
    return sizes
