"""What recommenders have in common: tables of items for everybody, and vectors of one user or of all of them.

The model is the same in two settings. Where each user trains alone, the model holds a vector of one user, a local
parameter that never leaves. For a baseline on a server that sees all users, `users` makes it a table, and column 1 of
the inputs says whose a row is (`sfumato.data.with_user_column`). Every row of that table begins where a client begins.

What both tell a trainer stands in two attributes: `local_parameters`, a regular expression that fullmatches the names
of what is a user's own, and `row_tables`, the tables of which an example touches only the row that a column of its
inputs names.
"""

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers.mapped import is_mapped


class Recommender(nn.Module):
    """Tables and vectors; a model adds them with `add_items` and `add_user`.

    Attributes:
        items: how many can be rated.
        users: of a baseline on a server; None for one user.
        offset: added to every value.
        classes: how many the model tells logits of; None where it tells a value.
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
