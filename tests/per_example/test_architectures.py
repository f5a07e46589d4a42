"""Networks of transformers and torch as they are: each example's gradient is that of autograd for it alone."""

import pytest
import torch

from architectures import ARCHITECTURES
from sfumato._check import InputError
from slow import slow_but

_TAKEN = [name for name, one in ARCHITECTURES.items() if not one.refused]
_QUICK = (
    "BERT",
    "ALBERT (shared layers)",
    "GPT-2",
    "Llama",
    "ViT",
    "BERT, LoRA",
    "MLP",
    "LSTM",
    "nn.TransformerEncoder",
)
_REFUSED = [name for name, one in ARCHITECTURES.items() if one.refused]


@pytest.mark.parametrize("name", slow_but(_TAKEN, *_QUICK))
def test_gradients_of_each_example_are_those_of_autograd(against_loop, name: str) -> None:
    one = ARCHITECTURES[name]
    model = one.model().eval()  # without dropout, which autograd would draw again
    inputs, targets = one.batch()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # none is zero, and no two alike
    against_loop(
        model,
        lambda *given: one.losses(model, given[:-1], given[-1]),
        (*(each[:5] for each in inputs), targets[:5]),
        relative=1e-4,
    )


@pytest.mark.parametrize("name", slow_but(_TAKEN, "GPT-2", "ViT", "MLP", "LSTM"))
def test_they_train(name: str) -> None:
    one = ARCHITECTURES[name]
    own = {"loss": one.loss} if one.task == "own" else {}
    result = one.plan().fit(one.model(), one.data(), **own)
    assert result.finished
    assert len(result.history) == 2


@pytest.mark.parametrize("name", _REFUSED)
def test_what_no_bound_holds_for_is_refused_by_name(name: str) -> None:
    one = ARCHITECTURES[name]
    own = {"loss": one.loss} if one.task == "own" else {}
    with pytest.raises(InputError, match=one.refused):
        one.plan().fit(one.model(), one.data(), **own)
