"""Matrix factorisation: a value is the product of a user's and an item's vector, with biases if wanted.

value = offset + <item_factors[i], user_factors> + item_bias[i] + user_bias. The vectors begin as normal numbers with
variance 1 / factors, those of a user in the same public place for everybody; biases begin at zero. No layer couples
examples.

For values that are classes, as stars, a linear layer makes logits of the products of each factor, and the biases are
those of each class.

References:
    Koren, Bell, Volinsky: Matrix Factorization Techniques for Recommender Systems. IEEE Computer 42(8), 2009.
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021, arXiv 2102.03448, section 5.

>>> model = matrix_factorization(1000)
>>> model(torch.tensor([[3], [999]])).shape, model.local_parameters, model.row_tables
(torch.Size([2]), 'user_factors', {'item_factors.weight': 0})
>>> matrix_factorization(1000, users=7)(torch.tensor([[3, 0], [999, 6]])).shape
torch.Size([2])
>>> matrix_factorization(1000, users=7, classes=5, biases=True)(torch.tensor([[3, 0], [999, 6]])).shape
torch.Size([2, 5])
"""

import torch
from torch import nn

from sfumato._check import whole
from sfumato.models.layers.initialise import glorot
from sfumato.models.recommenders.base import Recommender


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
        told = products.sum(1, keepdim=True) if self.output is None else self.output(products)
        if self.biases:
            told = told + (self.of_item(self.item_bias, inputs) + self.of_user(self.user_bias, inputs))
        return told[:, 0] + self.offset if self.output is None else told


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
        InputError: a size is not a whole number >= 1, the offset is not finite, or given beside classes.
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
