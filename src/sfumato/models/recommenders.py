"""Networks that predict which value a user gives an item, with a part that is each user's own.

All have tables of items for everybody, and vectors of one user or of all of them. The model is the same in two
settings. Where each user trains alone, the model holds a vector of one user, a local parameter that never leaves. For a
baseline on a server that sees all users, `users` makes it a table, and column 1 of the inputs says whose a row is
(`sfumato.data.with_user_column`). Every row of that table begins where a client begins.

A trainer reads two attributes of both: `local_parameters`, a regular expression that fullmatches the names
of what is a user's own, and `row_tables`, the tables of which an example touches only the row that a column of its
inputs names.

**Matrix factorisation:** a value is the product of a user's and an item's vector, with biases if wanted. value = offset
+ <item_factors[i], user_factors> + item_bias[i] + user_bias. The vectors begin as normal numbers with variance 1 /
factors, those of a user in the same public place for everybody; biases begin at zero. No layer couples examples.

For values that are classes, as stars, a linear layer makes logits of the products of each factor, and the biases are
those of each class.

>>> model = matrix_factorization(1000)
>>> model(torch.tensor([[3], [999]])).shape, model.local_parameters, model.row_tables
(torch.Size([2]), 'user_factors', {'item_factors.weight': 0})
>>> matrix_factorization(1000, users=7)(torch.tensor([[3, 0], [999, 6]])).shape
torch.Size([2])
>>> matrix_factorization(1000, users=7, classes=5, biases=True)(torch.tensor([[3, 0], [999, 6]])).shape
torch.Size([2, 5])

**Neural collaborative filtering:** the product of two vectors, and dense layers over two others. The product (GMF) and
the dense layers (MLP) have vectors of their own; a linear layer over both gives the value. A user's part is the two
vectors. Tables begin as normal numbers with variance 1 / factors, dense layers Glorot-uniform. No layer couples
examples.

>>> model = neural_collaborative_filtering(1000)
>>> model(torch.tensor([[3], [999]])).shape, model.local_parameters
(torch.Size([2]), 'user_factors|user_features')

**Linear layer** on frozen features, whose bias is each user's own: the smallest model with a local part.

>>> model = linear_head(512, 10)
>>> model(torch.zeros(2, 512)).shape, model.local_parameters
(torch.Size([2, 10]), 'head.bias')

References:
    Koren, Bell, Volinsky: Matrix Factorization Techniques for Recommender Systems. IEEE Computer 42(8), 2009.
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021, arXiv 2102.03448, section 5.
    He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering. WWW 2017, section 3.4 (NeuMF).
"""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers import glorot, is_mapped, refuse_no_units


class Recommender(nn.Module):
    """Tables and vectors; a model adds them with `add_items` and `add_user`.

    Attributes:
        items: how many can be rated.
        users: of a baseline on a server; None for one user.
        offset: added to every value.
        classes: how many the model gives logits of; None where it gives a value.
        local_parameters: fullmatches the names of what is a user's own; "" matches none.
        row_tables: the name of each table's weight, and the column of the inputs that alone chooses its rows.
    """

    def __init__(self, *, items: int, users: int | None, offset: float, classes: int | None = None) -> None:
        super().__init__()
        whole(items=items)
        if classes is not None:
            whole(at_least=2, classes=classes)
            if offset:
                raise InputError(f"offset={offset:g} is for values, and with classes there are none; leave it out")
        if users is not None:
            whole(users=users)
        if not abs(offset) < float("inf"):
            raise InputError(f"offset must be a finite number, got {offset}; it is the public middle of the values")
        self.items, self.users, self.offset, self.classes = items, users, float(offset), classes
        self.local_parameters = ""
        self.row_tables: dict[str, int] = {}

    def add_items(self, name: str, width: int) -> None:
        """A table with a row for each item."""
        self.add_module(name, nn.Embedding(self.items, width))
        self.row_tables[f"{name}.weight"] = 0

    def add_user(self, name: str, width: int) -> None:
        """A vector of the user, or a table with a row for each user."""
        if self.users is None:
            self.register_parameter(name, nn.Parameter(torch.zeros(width)))
            self.local_parameters = "|".join(filter(None, (self.local_parameters, name)))
        else:
            self.add_module(name, nn.Embedding(self.users, width))
            self.row_tables[f"{name}.weight"] = 1

    def begin(self, name: str, std: float, generator: torch.Generator | None) -> None:
        """Normal numbers in a table of items, or in a user's vector; a table of users repeats that vector."""
        part = getattr(self, name)
        weight = part if isinstance(part, nn.Parameter) else part.weight
        with torch.no_grad():
            if isinstance(part, nn.Embedding) and self.row_tables[f"{name}.weight"] == 1:
                weight.copy_(torch.empty(weight.shape[1]).normal_(std=std, generator=generator))
            else:
                weight.normal_(std=std, generator=generator)

    def of_item(self, table: nn.Embedding, inputs: torch.Tensor) -> torch.Tensor:
        """Each example's row of a table of items, float [n, width]."""
        return table(inputs[:, 0])

    def of_user(self, part: nn.Parameter | nn.Embedding, inputs: torch.Tensor) -> torch.Tensor:
        """The user's vector for each example, float [n, width]."""
        if isinstance(part, nn.Embedding):
            return part(inputs[:, 1])
        return part.expand(inputs.shape[0], -1)

    def check(self, inputs: torch.Tensor) -> None:
        """Refuse inputs that are no numbers of items (and users); values only where looking costs no wait."""
        counts = [("item", self.items)] + ([] if self.users is None else [("user", self.users)])
        if inputs.ndim != 2 or inputs.shape[1] != len(counts) or inputs.is_floating_point() or inputs.is_complex():
            kind = str(inputs.dtype).removeprefix("torch.")
            raise InputError(
                f"this model reads numbers of {' and '.join(f'{name}s' for name, _ in counts)}, int64 "
                f"[n, {len(counts)}], got {kind} {list(inputs.shape)}; with users=… it reads [n, 2] "
                "(data.with_user_column), without [n, 1]"
            )
        if inputs.device.type != "cpu" or is_mapped(inputs) or not inputs.shape[0]:
            return
        for column, (name, count) in enumerate(counts):
            low, high = inputs[:, column].aminmax()
            if low < 0 or high >= count:
                got = int(low if low < 0 else high)
                raise InputError(
                    f"the numbers of {name}s must be 0 … {count - 1:,}, got {got:,}; build the model with {name}s="
                    "… of the data"
                )


class MatrixFactorization(Recommender):
    """Items, a user, their product; see `matrix_factorization`."""

    item_factors: nn.Embedding
    user_factors: nn.Parameter | nn.Embedding
    item_bias: nn.Embedding
    user_bias: nn.Parameter | nn.Embedding

    def __init__(
        self, *, items: int, factors: int, biases: bool, offset: float, users: int | None, classes: int | None
    ) -> None:
        super().__init__(items=items, users=users, offset=offset, classes=classes)
        self.biases = biases
        self.add_items("item_factors", factors)
        self.add_user("user_factors", factors)
        if biases:
            self.add_items("item_bias", classes or 1)
            self.add_user("user_bias", classes or 1)
        self.output = None if classes is None else nn.Linear(factors, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map numbers of items, int64 [n, 1] (with users: and of users, [n, 2]), to values, float [n]; with classes to
        logits [n, classes]."""
        self.check(inputs)
        products = self.of_item(self.item_factors, inputs) * self.of_user(self.user_factors, inputs)
        outputs = products.sum(1, keepdim=True) if self.output is None else self.output(products)
        if self.biases:
            outputs = outputs + (self.of_item(self.item_bias, inputs) + self.of_user(self.user_bias, inputs))
        return outputs[:, 0] + self.offset if self.output is None else outputs


def matrix_factorization(
    items: int,
    *,
    factors: int = 50,
    biases: bool = False,
    offset: float = 0.0,
    users: int | None = None,
    classes: int | None = None,
    generator: torch.Generator | None = None,
) -> MatrixFactorization:
    """Build a matrix factorisation.

    Args:
        items: how many can be rated, >= 1; public.
        factors: numbers in a vector, >= 1.
        biases: a number for each item and one for the user, added.
        offset: added to every value: a public constant such as the middle of the range, 3.5 for stars.
        users: makes it a baseline on a server with a vector for each of so many users, >= 1; None is a model of one
            user.
        classes: gives logits of so many classes, >= 2, in place of a value.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, the offset is not finite, or given with classes.
    """
    whole(factors=factors)
    model = MatrixFactorization(
        items=items, factors=factors, biases=biases, offset=offset, users=users, classes=classes
    )
    for name in ("item_factors", "user_factors"):
        model.begin(name, factors**-0.5, generator)
    if biases:
        for name in ("item_bias", "user_bias"):
            model.begin(name, 0.0, generator)
    if model.output is not None:
        glorot(model, generator)
    return model


class NeuralCollaborativeFiltering(Recommender):
    """Items, a user, their product and dense layers; see `neural_collaborative_filtering`."""

    item_factors: nn.Embedding
    item_features: nn.Embedding
    user_factors: nn.Parameter | nn.Embedding
    user_features: nn.Parameter | nn.Embedding

    def __init__(
        self,
        *,
        items: int,
        factors: int,
        hidden: Sequence[int],
        offset: float,
        users: int | None,
        classes: int | None,
    ) -> None:
        super().__init__(items=items, users=users, offset=offset, classes=classes)
        for name in ("item_factors", "item_features"):
            self.add_items(name, factors)
        for name in ("user_factors", "user_features"):
            self.add_user(name, factors)
        widths = [2 * factors, *hidden]
        layers = [layer for into, out in itertools.pairwise(widths) for layer in (nn.Linear(into, out), nn.ReLU())]
        self.dense = nn.Sequential(*layers)
        self.output = nn.Linear(factors + widths[-1], classes or 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map numbers of items, int64 [n, 1] (with users: and of users, [n, 2]), to values, float [n]; with classes to
        logits [n, classes]."""
        self.check(inputs)
        product = self.of_item(self.item_factors, inputs) * self.of_user(self.user_factors, inputs)
        both = (self.of_user(self.user_features, inputs), self.of_item(self.item_features, inputs))
        outputs = self.output(torch.cat([product, self.dense(torch.cat(both, 1))], 1))
        return outputs[:, 0] + self.offset if self.classes is None else outputs


def neural_collaborative_filtering(
    items: int,
    *,
    factors: int = 32,
    hidden: Sequence[int] = (64, 32, 16),
    offset: float = 0.0,
    users: int | None = None,
    classes: int | None = None,
    generator: torch.Generator | None = None,
) -> NeuralCollaborativeFiltering:
    """Build a neural recommender.

    Args:
        items: how many can be rated, >= 1; public.
        factors: numbers in each of the vectors, >= 1.
        hidden: units of the dense layers, each >= 1.
        offset: added to every value: a public constant such as the middle of the range, 3.5 for stars.
        users, classes: as for `matrix_factorization`.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, there is no dense layer, or the offset is not finite.
    """
    whole(factors=factors)
    refuse_no_units(hidden=hidden)
    if not hidden:
        raise InputError("hidden must name at least one dense layer, got none; matrix_factorization has none")
    model = NeuralCollaborativeFiltering(
        items=items, factors=factors, hidden=hidden, offset=offset, users=users, classes=classes
    )
    for name in ("item_factors", "item_features", "user_factors", "user_features"):
        model.begin(name, factors**-0.5, generator)
    glorot(model, generator)
    return model


class LinearHead(nn.Module):
    """Features to logits; see `linear_head`.

    Attributes:
        local_parameters: fullmatches the names of what is a user's own.
        row_tables: there are none.
    """

    def __init__(self, *, features: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes)
        self.local_parameters = "head.bias"
        self.row_tables: dict[str, int] = {}

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map float [n, features] to logits, float [n, classes]."""
        return self.head(features)


def linear_head(features: int, classes: int, *, generator: torch.Generator | None = None) -> LinearHead:
    """Build a linear layer with Glorot-uniform weights, which all users share, and a bias of zeros, which is local.

    Args:
        features: numbers an example, >= 1.
        classes: outputs, >= 1.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1.
    """
    whole(features=features, classes=classes)
    model = LinearHead(features=features, classes=classes)
    glorot(model, generator)
    return model
