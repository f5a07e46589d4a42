"""Metrics, parameters and the statement in a run of MLflow."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato.logs.log import Log, package
from sfumato.logs.place import Place
from sfumato.logs.scalars import of_plan

_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@")
_LONGEST = {"parameter": 6000, "tag": 5000}
_EXPERIMENT = "sfumato"


class MLflow(Log):
    """Into an experiment of MLflow.

    Args:
        experiment: its name; it is made where there is none.
        uri: of the tracking server or the database; None for what MLFLOW_TRACKING_URI says.
        run: folder of the run (`fit(out=)`), so that a resumed run goes on in the same place; None for a new one.
        private: log what is private, too: see `Log`.
        public_evaluation: see `Log`.

    Raises:
        InputError: mlflow is not installed, or cannot use such a URI.
    """

    service = "MLflow"

    def __init__(
        self,
        experiment: str = _EXPERIMENT,
        *,
        uri: str | None = None,
        run: str | Path | None = None,
        private: bool = False,
        public_evaluation: bool = False,
    ) -> None:
        super().__init__(private=private, public_evaluation=public_evaluation)
        if uri is not None:
            _refuse(uri)
        self.where = f"{experiment}{f' at {uri}' if uri else ''}"
        self._mlflow = package("mlflow", module="mlflow", extra="mlflow")
        self.failures = (OSError, self._mlflow.exceptions.MlflowException)
        self._experiment = experiment
        self._place = Place(run, f"mlflow:{uri or ''}#{experiment}")
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=uri)
        except self.failures as error:
            raise self.unusable(error) from None

    def begin(self, plan: Mapping[str, Any], done: int) -> None:
        """A run there, or the one that was begun; what it has of later rounds is not written again."""
        known = self._place.known
        self._last: dict[str, int] = {}
        if known is None:
            there = self._client.get_experiment_by_name(self._experiment)
            place = self._client.create_experiment(self._experiment) if there is None else there.experiment_id
            name = None if self._place.run is None else self._place.run.name
            log = self._client.create_run(place, run_name=name)
            self._place.keep(log.info.run_id)
            fields = of_plan(plan).items()
            words = [self._mlflow.entities.Param(key, str(value)[: _LONGEST["parameter"]]) for key, value in fields]
            self._client.log_batch(log.info.run_id, params=words)
        else:
            log = self._client.get_run(known)
            self._client.update_run(known, status="RUNNING")
            for name in log.data.metrics:
                self._last[name] = max(each.step for each in self._client.get_metric_history(known, name))
        self._log = log.info.run_id
        self._time = None if self.private else log.info.start_time

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Metrics of the round."""
        now = int(1000 * time.time()) if self._time is None else self._time
        fresh = {name: value for name, value in numbers.items() if round > self._last.get(name, -1)}
        if fresh:
            kind = self._mlflow.entities.Metric
            self._client.log_batch(self._log, metrics=[kind(name, fresh[name], now, round) for name in fresh])

    def end(self, round: int, numbers: Mapping[str, float], statement: str, *, finished: bool) -> None:
        """The statement as a tag, its ε and δ as metrics."""
        self.write(round, numbers)
        self._client.set_tag(self._log, "statement", statement[: _LONGEST["tag"]])
        self._client.set_terminated(self._log, "FINISHED" if finished else "KILLED")


def _refuse(uri: str) -> None:
    """Refuse what MLflow would try for minutes, and a password, which plan.json would publish."""
    if _PASSWORD.search(uri):
        raise InputError(
            "a URI of MLflow with a password in it would be kept in plan.json; set MLFLOW_TRACKING_URI, or "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, instead"
        )
    file = uri.removeprefix("sqlite:///")
    if file != uri and not Path(file).parent.is_dir():
        raise InputError(f"there is no folder {Path(file).parent} for the database {uri}; make it first")
