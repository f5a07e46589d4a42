"""How often a model tells the next token of users' sequences, and how sure it is of it.

Counted are all tokens but padding. A second accuracy leaves out of the count the tokens that are not in the vocabulary
and the ends of the texts, as the tables of the StackOverflow task do: both are easily told and say little.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError
from sfumato.data import UserDataset, to_tensor
from sfumato.data.text.encoding import EOS_NAME, OOV_NAME, PADDING
from sfumato.federated.divided import refuse_few, refuse_undivided

_AT_ONCE = 1 << 24  # logits in memory, at most; a batch has one sequence at least


class NextToken:
    """A model maps token ids [n, T] to logits [n, T, vocabulary]; data sets are `UserDataset`s of sequences."""

    def check(self, data: UserDataset) -> None:
        """Refuse data that are no sequences of users, or in which nobody can hide among others."""
        refuse_undivided(data)
        if not data.of_sequences:
            raise InputError(
                "loss=next_token needs a label for every token, and the data have one an example; read texts with "
                "data.text_users (--text characters or words)"
            )
        refuse_few(data)

    def measure(self, model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Accuracy, mean log loss and perplexity over all tokens of all users."""
        length, size = data.input_shape[0], data.num_classes
        step = max(1, _AT_ONCE // (length * size))
        # As one tensor, so that no number goes from the device to the host before the end.
        sums = torch.zeros(5, dtype=torch.float64, device=device)
        easy = _ids(data, (OOV_NAME, EOS_NAME)).to(device)
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for user in range(len(data)):
                    inputs, labels = data.examples(user)
                    for start in range(0, len(labels), step):
                        tokens = to_tensor(inputs[start : start + step]).to(device)
                        targets = torch.from_numpy(labels[start : start + step]).to(device)
                        sums += _counted(model(tokens), targets, easy)
        finally:
            model.train(was_training)
        tokens, right, loss, known, known_right = sums.tolist()
        if not tokens:
            raise InputError("there are no tokens to measure on; give test data with texts")
        row: dict[str, Any] = {"accuracy": right / tokens, "tokens": int(tokens)}
        if len(easy) and known:
            row["accuracy_no_oov_no_eos"] = known_right / known
        if math.isfinite(loss):
            row["log_loss"] = loss / tokens
            row["perplexity"] = math.exp(min(loss / tokens, 700.0))  # beyond it, doubles end
        return row

    def about_test(self, data: UserDataset, row: dict[str, Any]) -> dict[str, Any]:
        """Counts of users, sequences and tokens, and the size of the vocabulary."""
        return {
            "data": "test",
            "users": len(data),
            "examples": data.num_examples,
            "classes": data.num_classes,
            "tokens": row["tokens"],
        }

    def headline(self, row: dict[str, Any]) -> str:
        """Accuracy."""
        return f"accuracy {row['accuracy']:.4f}" if "accuracy" in row else ""

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """Both accuracies, log loss and perplexity."""
        last = evaluation.get("trained") or evaluation["untrained"]
        names = {
            "accuracy": "accuracy",
            "accuracy_no_oov_no_eos": "without oov and eos",
            "log_loss": "log loss",
            "perplexity": "perplexity",
        }
        keys = [key for key in names if key in last]
        told = (
            f"on {evaluation['tokens']:,} tokens in {evaluation['examples']:,} test sequences of "
            f"{evaluation['users']:,} users"
        )
        return [names[key] for key in keys], keys, told

    def assumptions(self, data: UserDataset) -> list[str]:
        """What was taken to be public when the texts were read."""
        return list(data.assumptions)


def _counted(logits: Tensor, targets: Tensor, easy: Tensor) -> Tensor:
    """Sums over tokens, float64 [5]: their number, told right, log loss, number and told right without easy ones."""
    losses = functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=PADDING
    )
    there = targets != PADDING
    right = (logits.argmax(2) == targets) & there
    known = there & ~torch.isin(targets, easy)
    sums = (there.sum(), right.sum(), losses.sum(dtype=torch.float64), known.sum(), (right & known).sum())
    return torch.stack([each.double() for each in sums])


def _ids(data: UserDataset, names: tuple[str, ...]) -> Tensor:
    """The ids of tokens that have these names, int64."""
    held = list(data.label_names or ())
    return torch.tensor([held.index(name) for name in names if name in held], dtype=torch.int64)
