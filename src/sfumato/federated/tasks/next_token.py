"""How often a model tells the next token of users' sequences, and how sure it is of it.

Counted are all tokens but padding. A second accuracy leaves out of the count the tokens that are not in the vocabulary
and the ends of the texts, as the tables of the StackOverflow task do: both are easily told and say little.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.data.text import EOS_NAME, OOV_NAME, PADDING
from sfumato.federated.tasks.outputs import OutputTask


class NextToken(OutputTask):
    """A model maps token ids [n, T] to logits [n, T, vocabulary]."""

    columns: ClassVar = {
        "accuracy": "accuracy",
        "accuracy_no_oov_no_eos": "without oov and eos",
        "log_loss": "log loss",
        "perplexity": "perplexity",
    }
    things: ClassVar = "tokens"

    def refuse_other(self, data: UserDataset) -> None:
        """Refuse data that are no sequences."""
        if not data.of_sequences:
            raise InputError(
                "loss=next_token needs a label for every token, and the data have one an example; read texts with "
                "data.text_users (--text characters or words)"
            )

    def size_of(self, data: UserDataset) -> int:
        """A logit of every id at every place."""
        return data.input_shape[0] * data.num_classes

    def known_of(self, data: UserDataset, device: str) -> Tensor:
        """The ids that are easily told."""
        return _ids(data, (OOV_NAME, EOS_NAME)).to(device)

    def sums(self, outputs: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Number of tokens, told right, log loss, number and told right without easy ones, and whether there are any
        easy ones."""
        losses = functional.cross_entropy(
            outputs.flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=PADDING
        )
        there = targets != PADDING
        right = (outputs.argmax(2) == targets) & there
        hard = there & ~torch.isin(targets, known)
        counted = (there.sum(), right.sum(), losses.sum(dtype=torch.float64), hard.sum(), (right & hard).sum())
        return torch.stack([*(each.double() for each in counted), torch.full_like(losses[0], len(known)).double()])

    def row(self, sums: list[float]) -> dict[str, Any]:
        """Both accuracies, mean log loss and perplexity."""
        tokens, right, loss, known, known_right, easy = sums
        row: dict[str, Any] = {"accuracy": right / tokens, "tokens": int(tokens)}
        if easy and known:
            row["accuracy_no_oov_no_eos"] = known_right / known
        if math.isfinite(loss):
            row["log_loss"] = loss / tokens
            row["perplexity"] = math.exp(min(loss / tokens, 700.0))  # beyond it, doubles end
        return row

    def line(self, evaluation: dict[str, Any]) -> str:
        """Tokens and sequences."""
        return (
            f"on {evaluation['tokens']:,} tokens in {evaluation['examples']:,} test sequences of "
            f"{evaluation['users']:,} users"
        )


def _ids(data: UserDataset, names: tuple[str, ...]) -> Tensor:
    """The ids of tokens that have these names, int64."""
    held = list(data.label_names or ())
    return torch.tensor([held.index(name) for name in names if name in held], dtype=torch.int64)
