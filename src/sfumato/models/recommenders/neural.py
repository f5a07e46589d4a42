"""Neural collaborative filtering: the product of two vectors beside dense layers over two others.

The product (GMF) and the dense layers (MLP) have vectors of their own; a linear layer over both tells the value. A
user's part is the two vectors. Tables begin as normal numbers with variance 1 / factors, dense layers Glorot-uniform.
No layer couples examples.

References:
    He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering. WWW 2017, section 3.4 (NeuMF).

>>> model = neural_collaborative_filtering(1000)
>>> model(torch.tensor([[3], [999]])).shape, model.local_parameters
(torch.Size([2]), 'user_factors|user_features')
"""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers.initialise import glorot
from sfumato.models.recommenders.base import Recommender


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
        told = self.output(torch.cat([product, self.dense(torch.cat(both, 1))], 1))
        return told[:, 0] + self.offset if self.classes is None else told


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
    if not hidden:
        raise InputError("hidden must name at least one dense layer, got none; matrix_factorization has none")
    for units in hidden:
        whole(hidden=units)
    model = NeuralCollaborativeFiltering(
        items=items, factors=factors, hidden=hidden, offset=offset, users=users, classes=classes
    )
    for name in ("item_factors", "item_features", "user_factors", "user_features"):
        model.begin(name, factors**-0.5, generator)
    glorot(model, generator)
    return model
