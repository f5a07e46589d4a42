"""The stages of a run: prior, reports and model of each, kept when it is done.

- **Stopped.** Ctrl-C ends a stage at its next step with `KeyboardInterrupt`. What the stages before it have left is in
  the run, and so are this stage's reports if they were drawn: a run that goes on draws none again.
- **A model that diverges** expects nothing: where its outputs are not finite, the next stage's labels have an even
  prior, because the labels that are paid for are worth more than a run that ends.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato._random import RandomSource
from sfumato.accounting import Event, compose
from sfumato.data import ExampleDataset
from sfumato.labels.clusters import label_counts
from sfumato.labels.phase import reports_of, words_of
from sfumato.labels.stages import StagesSettings
from sfumato.mechanisms.randomized_response.priors import ranked
from sfumato.runs import Run
from sfumato.runs.checkpoint import Checkpoint
from sfumato.training.scores import measure
from sfumato.training.supervised import outputs
from sfumato.training.trainable import copied

Progress = Callable[[str, int, int], None]
"""Is told what goes on ("stages", "steps"), how much of it is done, and of how much."""

_NOTHING: Event = compose({})
"""What later stages add: their labels are others than those of the first one, whose cost covers all."""


@dataclass(kw_only=True, eq=False)
class Learning:
    """A run's stages.

    Attributes:
        settings: of the plan.
        data: public inputs.
        labels: int64 [rows], private.
        classes: how many there are.
        parts: the rows of each stage.
        groups: the cluster of each row; None without clusters.
        test: to measure on, or None.
        run: open, and started.
        device: where to train.
        progress: is told how far it is.
        rows: what was measured on the test data, by name.
    """

    settings: StagesSettings
    data: ExampleDataset
    labels: np.ndarray
    classes: int
    parts: list[np.ndarray]
    groups: np.ndarray | None
    test: ExampleDataset | None
    run: Run
    device: str
    progress: Progress
    rows: dict[str, Any] = field(default_factory=dict)

    def go(self, first: nn.Module, saved: Checkpoint | None) -> tuple[nn.Module, np.ndarray]:
        """The last model, on the device and in evaluation mode, and all reports.

        Args:
            first: where training starts; it stays as it is.
            saved: of a run that goes on.
        """
        total, done = len(self.parts), 0 if saved is None else int(saved.state.get("stages", 0))
        trained = copied(first).to(self.device).eval()
        if self.run.folder is not None and saved is not None:
            self.rows = self.run.folder.evaluation()
        if saved is None or not done:
            self._measure("untrained", trained)
        else:
            trained.load_state_dict(saved.tensors)
        reports = np.full(len(self.data), -1, np.int64)
        for stage, part in enumerate(self.parts):
            self.progress("stages", stage, total)
            if stage < done:
                reports[part] = self._reported(part, None, stage)  # released before: nothing is drawn
                continue
            trained = self._stage(trained, first, reports, stage)
            state = {name: value.cpu() for name, value in trained.state_dict().items()}
            if stage + 1 == total and self.test is not None:
                self._keep("trained", self.rows[f"stage {total}"])
            self.run.save(state, {"stages": stage + 1}, complete=stage + 1 == total)
        self.progress("stages", total, total)
        return trained, reports

    def _stage(self, before: nn.Module, first: nn.Module, reports: np.ndarray, stage: int) -> nn.Module:
        """The model of a stage; its reports are put among the others."""
        part = self.parts[stage]
        prior = self._prior(before, part, stage)
        self._refuse_to_go_on()
        reports[part] = self._reported(part, prior, stage)
        known = np.sort(np.concatenate(self.parts[: stage + 1]))
        if prior is None:
            prior = np.full((1, self.classes), 1 / self.classes)
        reported = float(ranked(prior, self.settings.label_epsilon)[1].mean())
        kept = known
        if stage and self.settings.drop_unlikely:
            kept = self._likely(before, known, part, max(1, round(reported)), reports)
        inputs, _ = self.data.examples(kept)

        def watch(step: int, steps: int) -> None:
            self._refuse_to_go_on()
            self.progress("steps", stage * steps + step, len(self.parts) * steps)

        trained = self.settings.training.fit(
            before if self.settings.warm_start else first,
            inputs,
            reports[kept],
            source=self.run.source.within(f"stage {stage}"),
            device=self.device,
            watch=watch,
        )
        told = {"labels": len(part), "trained_on": len(kept), "classes_reported": reported}
        self.run.note({"round": stage + 1, **told})
        self._measure(f"stage {stage + 1}", trained)
        return trained

    def _refuse_to_go_on(self) -> None:
        if self.run.asked_to_stop:
            raise KeyboardInterrupt

    def _measure(self, name: str, model: nn.Module) -> None:
        if self.test is not None:
            self._keep(name, measure(model, self.test, device=self.device))

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name] = row
        if self.run.folder is not None:
            about = {"data": "test", "examples": len(self.test or ()), "classes": self.classes}
            self.run.folder.add_evaluation(name, row, about)

    def _prior(self, model: nn.Module, part: np.ndarray, stage: int) -> np.ndarray | None:
        """What is thought of the labels of a part before they are seen, float64 [rows, classes]; None for nothing."""
        if stage:
            return self._expected(model, part)
        if self.settings.histogram is None or self.groups is None:
            return None
        counts = label_counts(self.groups, self.labels, groups_count=self.settings.clusters, classes=self.classes)
        return self.settings.histogram.release(self.run, counts)[self.groups[part]]

    def _reported(self, part: np.ndarray, prior: np.ndarray | None, stage: int) -> np.ndarray:
        """The reports of a part: a release of the run; the first one's cost is that of all."""
        response, threads = self.settings.response(self.classes), torch.get_num_threads()

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            found = reports_of(response, self.labels[part], words_of(source), prior, threads=threads)
            return {"labels": torch.from_numpy(found)}

        event = response.event() if not stage else _NOTHING
        phase = f"labels of stage {stage + 1}"
        told = {"stage": stage + 1, "rows": len(part), "parallel": bool(stage)}
        return self.run.release(phase, event, draw, **told)["labels"].numpy()

    def _likely(
        self, model: nn.Module, known: np.ndarray, part: np.ndarray, keep: int, reports: np.ndarray
    ) -> np.ndarray:
        """Of these rows, those of this stage, and those whose report is among so many classes that the model holds
        likely."""
        expected = self._expected(model, known)
        own = np.take_along_axis(expected, reports[known][:, None], axis=1)
        likely = (expected > own).sum(axis=1) < keep
        return known[likely | np.isin(known, part)]

    def _expected(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """The model's probabilities of the classes, float64 [rows, classes]; even ones where it gives none."""
        inputs, _ = self.data.examples(rows)
        logits = torch.from_numpy(outputs(model, inputs, device=self.device)).double() / self.settings.temperature
        given = torch.isfinite(logits).all(dim=1)
        if not given.all():
            warnings.warn(
                f"the model gives no finite outputs for {int((~given).sum()):,} of {len(rows):,} rows, so nothing is "
                "expected of their labels; does it diverge? in the next run, lower the learning rate",
                stacklevel=2,
            )
            logits[~given] = 0.0
        return torch.softmax(logits, dim=1).numpy()
