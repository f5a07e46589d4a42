"""Regression on private numbers; what it costs, and what its reports say, stands in `labels.regression`.

- **Resume.** Histogram and reports are releases of the run: a run that goes on finds them, and draws none again.
- **Released.** The reports, the histogram, and the model.

>>> from sfumato.data import examples_from_arrays
>>> inputs = np.random.default_rng(0).uniform(size=(2000, 1)).astype(np.float32)
>>> data = examples_from_arrays(inputs, 10 * inputs[:, 0])
>>> plan = RROnBins(epsilon=3.0, low=0.0, high=10.0, values=21, epochs=5, seed=0)
>>> result = plan.fit(nn.Linear(1, 1), data, test=data)
>>> result.statement.unit, result.statement.epsilon, result.evaluation["trained"]["rmse"] < 1.5
('label', 3.0, True)

References:
    Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan, Zhang: Regression with Label Differential Privacy. ICLR 2023,
    arXiv 2212.06074. Algorithms 1 and 2.
"""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Event
from sfumato.data import ExampleDataset
from sfumato.data.singles import refuse_not_finite
from sfumato.labels.clusters import label_counts
from sfumato.labels.coding import GridCoding
from sfumato.labels.fitting import refuse_other_data, refuse_other_test
from sfumato.labels.learning import Progress
from sfumato.labels.phase import randomized
from sfumato.labels.plan import Given, LabelPlan
from sfumato.labels.regression import RegressionSettings
from sfumato.runs import Checkpoint, Run
from sfumato.training.scores import measure, require_outputs
from sfumato.training.supervised import Inputs, outputs
from sfumato.training.trainable import copied

_REHEARSED = 100  # steps on made-up numbers


@dataclass(frozen=True, kw_only=True)
class RROnBins(RegressionSettings, LabelPlan[np.ndarray]):
    """The plan; its fields are those of `RegressionSettings`. It has no clusters, and takes no features."""

    def ready(self, given: Given) -> np.ndarray:
        """The labels' places on the grid, int64 [rows], where all fits together."""
        refuse_other_data(given.data)
        if given.features is not None:
            raise InputError("features are for clusters, and bins are the same for all rows; leave them out")
        places = self._places(given.data)
        self.refuse_ordered(places, self.values)
        if given.test is not None:
            refuse_other_test(given.test, given.data)
        require_outputs(given.model, given.data, classes=None, whose="model", device=given.device)
        self._rehearse(given.model, given.data, given.device)
        return places

    def costs(self, ready: np.ndarray) -> list[Event]:
        """The histogram, and the labels."""
        return self.events()

    def mechanism(self, ready: np.ndarray) -> str:
        """For the statement."""
        return self.labels.in_words(self.values)

    def learn(
        self, ready: np.ndarray, given: Given, run: Run, saved: Checkpoint | None, progress: Progress
    ) -> tuple[nn.Module, np.ndarray, dict[str, Any]]:
        """Count, report, train."""
        model, data, device = given.model, given.data, given.device
        progress("stages", 0, 1)
        prior = self._prior(run, ready)
        _refuse_to_go_on(run)
        response = self.labels.response(self.values, prior)
        reports = randomized(run, response, ready, rows=len(data))
        if saved is not None and saved.complete:  # its key is gone, so the model is not trained again
            trained = copied(model).to(device).eval()
            trained.load_state_dict(saved.tensors)
            rows = {} if run.folder is None else run.folder.evaluation()
        else:
            targets = self.with_right_mean(response, reports, prior) if self.unbiased else reports
            trained = self._trained(model, data, targets, run, device, progress)
            rows = self._measured({"untrained": model, "trained": trained}, given.test, run, device)
            state = {name: value.cpu() for name, value in trained.state_dict().items()}
            run.save(state, {"stages": 1}, complete=True)
        progress("stages", 1, 1)
        return trained, reports, rows

    def _trained(
        self, model: nn.Module, data: ExampleDataset, targets: np.ndarray, run: Run, device: str, shown: Progress
    ) -> nn.Module:
        """A copy of the model, trained on what stands for the labels."""

        def watch(step: int, steps: int) -> None:
            _refuse_to_go_on(run)
            shown("steps", step, steps)

        inputs, _ = data.examples(np.arange(len(data)))
        source = run.source.within("regression")
        trained = self.training.fit(model, inputs, targets, source=source, device=device, watch=watch)
        if self._strayed(model, trained, inputs, targets, device):
            warnings.warn(
                "the model is further from the reports than before it was trained, and the labels are paid for: it "
                f"diverged; in the next run, lower learning_rate ({self.learning_rate:g}) or take another optimizer",
                stacklevel=2,
            )
        return trained

    def _rehearse(self, model: nn.Module, data: ExampleDataset, device: str) -> None:
        """Refuse a training that diverges, by its first steps on numbers that are made up, before labels are paid for.

        Raises:
            InputError: it does.
        """
        source = RandomSource.from_seed(0)
        places = source.stream("made-up numbers").integers(self.values, len(data))
        inputs, _ = data.examples(np.arange(len(data)))
        steps = min(_REHEARSED, self.training.steps_for(len(data)))
        training = dataclasses.replace(self.training, steps=steps)
        targets = self.labels.grid[places]
        trained = training.fit(model, inputs, targets, source=source.within("rehearsal"), device=device)
        if self._strayed(model, trained, inputs, targets, device):
            raise InputError(
                f"learning_rate {self.learning_rate:g} is too high: in {steps} steps on made-up numbers from "
                f"{self.low:g} to {self.high:g} the model diverges; lower it, or take adam. No label was drawn"
            )

    def _strayed(self, before: nn.Module, after: nn.Module, inputs: Inputs, targets: np.ndarray, device: str) -> bool:
        """Whether a model has left the range, and is further from its targets than before, or nowhere."""

        def error(model: nn.Module) -> float:
            given = outputs(model, inputs, device=device).astype(np.float64).reshape(-1)
            with np.errstate(over="ignore", invalid="ignore"):
                return float(np.abs((np.exp(given) if self.loss == "poisson" else given) - targets).mean())

        return not error(after) <= error(copied(before).to(device)) + (self.high - self.low)

    def _places(self, data: ExampleDataset) -> np.ndarray:
        """The labels' places on the grid, int64 [rows]."""
        if data.targets is None or data.num_classes is not None or data.targets.ndim != 1:
            raise InputError(
                f"labels must be one number for each example, got {data}; classes are for sfumato labeldp train "
                "(LPMST), or read them with classes=False"
            )
        numbers = np.asarray(data.targets, np.float64)
        refuse_not_finite(numbers, "labels")
        return GridCoding(self.low, self.high, self.values).places(numbers)

    def _prior(self, run: Run, places: np.ndarray) -> np.ndarray | None:
        """How likely the values are by the noisy histogram, float64 [values]; None where nothing is counted."""
        histogram = self.labels.histogram
        if histogram is None:
            return None
        counts = label_counts(np.zeros_like(places), places, groups_count=1, classes=self.values)
        return histogram.release(run, counts)[0]

    def _measured(
        self, models: dict[str, nn.Module], test: ExampleDataset | None, run: Run, device: str
    ) -> dict[str, Any]:
        """What is found on the test data, by name."""
        if test is None:
            return {}
        rates = self.loss == "poisson"
        rows = {name: measure(model, test, log_rates=rates, device=device) for name, model in models.items()}
        if run.folder is not None:
            for name, row in rows.items():
                run.folder.add_evaluation(name, row, {"data": "test", "examples": len(test)})
        return rows


def _refuse_to_go_on(run: Run) -> None:
    if run.asked_to_stop:
        raise KeyboardInterrupt
