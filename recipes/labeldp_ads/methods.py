"""What learns from private conversions: logistic regression, by what each method may see of the labels.

All begin at zero, and settings are the passes over the rows, the learning rate, and the decay of the weights or the
bound on each row's gradient. DP-SGD and LabelDP-Pro draw batches of about a sixteenth of the rows, or another part.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import refuse_stopped

from sfumato._random import RandomSource
from sfumato.central import DPSGD, LabelDPPro
from sfumato.data import ExampleDataset
from sfumato.labels import label_facts, randomized
from sfumato.labels.response import LabelResponse
from sfumato.runs import Run
from sfumato.statement import Statement
from sfumato.training import Supervised

Found = tuple[nn.Module, Statement | None]


class Reported(nn.Module):
    """A model of labels as one of their reports: its probabilities go through those of the response.

    Its cross-entropy with reports is `forward_loss` of the model.

    Args:
        model: of logits.
        chances: float [labels, reports].
    """

    def __init__(self, model: nn.Module, chances: np.ndarray) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("logs", torch.from_numpy(np.log(chances)).float())

    def forward(self, inputs: Tensor) -> Tensor:
        """The logarithms of the reports' probabilities, float [n, reports]."""
        return torch.logsumexp(torch.log_softmax(self.model(inputs), dim=1)[:, :, None] + self.logs, dim=1)


def start(data: ExampleDataset) -> nn.Module:
    """Zeros."""
    model = nn.Linear(data.input_shapes[0][0], 2)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def plain(data: ExampleDataset, epsilon: float, seed: int, **settings: Any) -> Found:
    """Nothing is hidden."""
    return _fitted(start(data), data, np.asarray(data.targets), seed, settings), None


def reports_as_they_are(data: ExampleDataset, epsilon: float, seed: int, **settings: Any) -> Found:
    """Randomised response, and a model of the reports that takes them for labels."""
    reports, statement, _ = _reports(data, epsilon, seed)
    return _fitted(start(data), data, reports, seed, settings), statement


def forward(data: ExampleDataset, epsilon: float, seed: int, **settings: Any) -> Found:
    """Randomised response, and a loss that knows it."""
    reports, statement, response = _reports(data, epsilon, seed)
    fitted = _fitted(Reported(start(data), response.probabilities()), data, reports, seed, settings)
    assert isinstance(fitted, Reported)
    return fitted.model, statement


def dpsgd(data: ExampleDataset, epsilon: float, seed: int, **settings: Any) -> Found:
    """Everything of a row is hidden, by noise on clipped gradients."""
    return _by_gradients(DPSGD, data, epsilon, seed, settings)


def projected(data: ExampleDataset, epsilon: float, seed: int, **settings: Any) -> Found:
    """Labels are hidden by noise on clipped gradients, of which the inputs take away a part."""
    return _by_gradients(LabelDPPro, data, epsilon, seed, settings)


METHODS: dict[str, Callable[..., Found]] = {
    "without privacy": plain,
    "LabelDP: RR, forward loss": forward,
    "LabelDP: RR, reports as labels": reports_as_they_are,
    "LabelDP-Pro": projected,
    "DP-SGD": dpsgd,
}
PLAIN = "without privacy"


def _reports(data: ExampleDataset, epsilon: float, seed: int) -> tuple[np.ndarray, Statement, LabelResponse]:
    """Each label randomised once among both classes."""
    response = LabelResponse(epsilon=epsilon, classes=2, size=2)
    with Run.open(None, plan={"plan": "conversions"}, seed=seed) as run:
        run.start(data.fingerprint())
        reports = randomized(run, response, np.asarray(data.targets))
        facts = label_facts(population=len(data), mechanism="randomised response on 2 classes")
        return reports, run.finish({}, facts), response


def _fitted(model: nn.Module, data: ExampleDataset, labels: np.ndarray, seed: int, settings: dict[str, Any]) -> Any:
    (inputs,), _ = data.examples(np.arange(len(data)))
    training = Supervised(batch_size=256, momentum=0.9, schedule="cosine", **settings)
    return training.fit(model, inputs, labels, source=RandomSource.from_seed(seed))


def _by_gradients(
    kind: type[DPSGD], data: ExampleDataset, epsilon: float, seed: int, settings: dict[str, Any]
) -> Found:
    settings = dict(settings)
    batches = settings.pop("batches", 16)  # that the rows make
    plan = kind(cohort=max(1, len(data) // batches), server={"schedule": "cosine"}, seed=seed, **settings).calibrate(
        epsilon=epsilon, delta=0.01 / len(data), population=len(data)
    )
    result = plan.fit(start(data), data)
    refuse_stopped(result.finished)
    return result.model, result.statement
