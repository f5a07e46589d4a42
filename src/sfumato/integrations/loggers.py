"""Callbacks that log a run to TensorBoard, Weights & Biases or MLflow.

`Log` is the callback, and the only place that decides what is logged, by which process, and that a run outlives its
log; the three classes below it write numbers where their service keeps them.

Logged are the plan, and for each round what the guarantee covers: ε so far, clip norm, learning rate. Losses, cohort
sizes, shares that were clipped and seconds were computed without noise: they are logged with `private=True` only, under
names that begin with "private/", and are outside of the guarantee, as the statement of that run then says. So is what
was measured, unless the data to measure on are public.

How long a round took reveals how many took part. So the times of the numbers are that of the start where a format lets
us choose; who can watch them arrive sees more.

>>> row = {"round": 3, "epsilon": 0.5, "clip_norm": None, "learning_rate": [0.1, 0.2], "not_private": {"loss": 2.0}}
>>> of_round(row, private=False)
{'epsilon': 0.5, 'learning_rate/0': 0.1, 'learning_rate/1': 0.2}
>>> of_round(row, private=True)["private/loss"]
2.0
"""

import json
import math
import re
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, final

from torch import nn

from sfumato._check import InputError, first_line
from sfumato._files import read_json, write_json
from sfumato._types import Assumption
from sfumato.runs.processes import Team
from sfumato.training import Callback, Result

PRIVATE = "private/"
"""How the names begin of what was computed from private records without noise."""

_NOT_SHOWN = ("round", "not_private")
_LONGEST_REASON = 200  # characters of what a library says
_LONGEST_PROJECT = 128
_FORBIDDEN = frozenset("\\#?%:")  # in the name of a project of Weights & Biases
_LONGEST = {"parameter": 6000, "tag": 5000}  # that MLflow takes
_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@")


class Log(Callback):
    """Inherit from it for a log of your own: three methods.

    Args:
        private: log what was computed from private records without noise, too.
        public_evaluation: the data to measure on are public, so what was measured may be logged.

    Attributes:
        service: what keeps it.
        where: its place there.
        failures: what its library raises where it cannot write.
    """

    service: ClassVar[str]
    where: str
    failures: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, *, private: bool = False, public_evaluation: bool = False) -> None:
        self.private, self.public_evaluation = private, public_evaluation
        self._open = False

    @abstractmethod
    def begin(self, plan: Mapping[str, Any], done: int) -> None:
        """Open it.

        Args:
            plan: its fields.
            done: rounds that were done before; of a run that goes on, what comes after them comes again.
        """

    @abstractmethod
    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Write named numbers of a round."""

    @abstractmethod
    def end(self, round: int, numbers: Mapping[str, float], statement: str, *, finished: bool) -> None:
        """Write the last numbers and the statement, and close it.

        Args:
            round: rounds done.
            numbers: ε and δ of the statement, and what was measured.
            statement: its text.
            finished: whether all rounds ran.
        """

    @final
    def assumptions(self) -> list[Assumption]:
        """What the statement says of a log that holds private numbers."""
        return [Assumption("logged", {"service": self.service})] if self.private else []

    @final
    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Open it, in the first of several processes."""
        if not Team().leads:
            return
        try:
            self.begin(plan, done)
        except self.failures as error:
            raise self.unusable(error) from error
        self._open = True

    @final
    def on_round(self, row: dict[str, Any]) -> None:
        """Log a round."""
        self._write(row["round"], of_round(row, private=self.private))

    @final
    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """Log what was measured on the validation data."""
        self._write(row["round"], self._measured(row, "validation"))

    @final
    def on_end(self, result: Result) -> None:
        """Log the statement, and close."""
        statement = result.statement
        numbers = {"statement/epsilon": statement.epsilon, "statement/delta": statement.delta}
        numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
        numbers |= self._measured(result.evaluation.get("trained", {}), "test")
        seen = result.evaluation.get("seen", {})
        numbers |= of_evaluation(seen, "seen", private=self.private, public=False)
        done = result.history[-1]["round"] if result.history else 0
        self._outlive(lambda: self.end(done, numbers, statement.text(), finished=result.finished))
        self._open = False

    def unusable(self, error: Exception) -> InputError:
        """The one line for a log that cannot be opened."""
        return InputError(f"{self._name} cannot be opened: {_reason(error)}; mend it, or leave this log out")

    @property
    def _name(self) -> str:
        return f"the log in {self.service} ({self.where})"

    def _measured(self, row: Mapping[str, Any], data: str) -> dict[str, float]:
        return of_evaluation(row, data, private=self.private, public=self.public_evaluation)

    def _write(self, round: int, numbers: Mapping[str, float]) -> None:
        if numbers:
            self._outlive(lambda: self.write(round, numbers))

    def _outlive(self, write: Callable[[], None]) -> None:
        """Write, if it is open; a log that breaks costs its rows and not the run."""
        if not self._open:
            return
        try:
            write()
        except self.failures as error:
            self._open = False
            warnings.warn(f"{self._name} takes no more ({_reason(error)}); the run goes on without it", stacklevel=4)


class TensorBoard(Log):
    """Scalars, hyperparameters and the statement in an event file, in a folder that `tensorboard --logdir` shows.

    A run that goes on writes into the same folder; the rounds that it repeats take the place of those that were there.

    Args:
        folder: of this run; a run that begins anew hides what an earlier one has written there.
        private: log what is private, too: see `Log`.
        public_evaluation: see `Log`.

    Raises:
        InputError: tensorboard is not installed, or the folder is a file.
    """

    service = "TensorBoard"

    def __init__(self, folder: str | Path, *, private: bool = False, public_evaluation: bool = False) -> None:
        super().__init__(private=private, public_evaluation=public_evaluation)
        self._folder = Path(folder)
        self.where = str(self._folder)
        self._torch = package("tensorboard", module="torch.utils.tensorboard")
        self._summary = package("tensorboard", module="torch.utils.tensorboard.summary")
        taken = next((path for path in (self._folder, *self._folder.parents) if path.exists()), None)
        if taken is not None and not taken.is_dir():
            raise InputError(f"TensorBoard needs a folder, and {taken} is a file; give another path")

    def begin(self, plan: Mapping[str, Any], done: int) -> None:
        """The folder; the event file begins with the first numbers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._time = None if self.private else time.time()
        results = {"statement/epsilon": 0.0, "statement/delta": 0.0}
        begun, started, self._ended = self._summary.hparams(_fields(plan), results)
        self._first = () if done else (begun, started)
        self._writer: Any = None

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Scalars; on the disk at once, so that a run that is killed and goes on leaves no gap."""
        if self._writer is None:  # what comes again takes the place of what was there from here on
            self._wait_for_a_later_name()
            self._writer = self._torch.SummaryWriter(self._folder, purge_step=round)
            for each in self._first:
                self._writer.file_writer.add_summary(each, 0, self._time)
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round, walltime=self._time)
        self._writer.flush()

    def end(self, round: int, numbers: Mapping[str, float], statement: str, *, finished: bool) -> None:
        """The statement as a text, its ε and δ as scalars; not again where no round was left to do."""
        if self._writer is None:
            return
        self.write(round, numbers)
        self._writer.add_text("statement", statement, round, walltime=self._time)
        if finished:
            self._writer.file_writer.add_summary(self._ended, round, self._time)
        self._writer.close()

    def _wait_for_a_later_name(self) -> None:
        """Event files are read in the order of their names, the second comes first in them: no two in the same."""
        while any(self._folder.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
            time.sleep(0.05)


class WandB(Log):
    """Numbers, configuration and the statement in a run of Weights & Biases.

    Nothing is sent but what is logged: not the terminal's output, which shows losses, nor code, command line or the
    load of the machine. The service itself notes when each row arrives, which reveals how long a round took.

    Args:
        project: its name, or ENTITY/PROJECT.
        run: folder of the run (`fit(out=)`), so that a resumed run goes on in the same place; None for a new one.
        private: log what is private, too: see `Log`.
        public_evaluation: see `Log`.

    Raises:
        InputError: wandb is not installed, or the project cannot be called so.
    """

    service = "Weights & Biases"

    def __init__(
        self,
        project: str,
        *,
        run: str | Path | None = None,
        private: bool = False,
        public_evaluation: bool = False,
    ) -> None:
        super().__init__(private=private, public_evaluation=public_evaluation)
        entity, _, self._project = project.rpartition("/")
        self._entity = entity or None
        if not self._project or "/" in entity or _FORBIDDEN & set(project) or len(self._project) > _LONGEST_PROJECT:
            raise InputError(
                f"a project of Weights & Biases is PROJECT or ENTITY/PROJECT, of at most {_LONGEST_PROJECT} letters "
                f"and none of {' '.join(sorted(_FORBIDDEN))}, got {project!r:.160}"
            )
        self.where = project
        self._wandb = package("wandb")
        self.failures = (OSError, self._wandb.errors.Error)
        self._place = Place(run, f"wandb:{project}")

    def begin(self, plan: Mapping[str, Any], done: int) -> None:
        """A run there, or the one that was begun; its steps only go forward, so repeated rounds are not doubled."""
        settings = self._wandb.Settings(
            console="off",
            save_code=False,
            disable_code=True,
            disable_git=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            silent=True,
        )
        known = self._place.known
        self._run = self._wandb.init(
            project=self._project,
            entity=self._entity,
            id=known,
            name=self._place.run_name,
            resume=None if known is None else "allow",
            config=dict(plan),
            reinit="create_new",
            settings=settings,
        )
        self._place.keep(self._run.id)
        self._last = self._run.step - 1 if known is not None else -1

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """One row of the round."""
        if round > self._last:
            self._run.log(dict(numbers), step=round)

    def end(self, round: int, numbers: Mapping[str, float], statement: str, *, finished: bool) -> None:
        """The statement in the summary."""
        self._run.summary.update({**numbers, "statement/text": statement})
        self._run.finish(exit_code=0 if finished else 1)


class MLflow(Log):
    """Metrics, parameters and the statement in an experiment of MLflow.

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
        experiment: str = "sfumato",
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
        self._mlflow = package("mlflow")
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
            log = self._client.create_run(place, run_name=self._place.run_name)
            self._place.keep(log.info.run_id)
            fields = _fields(plan).items()
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


def of_round(row: Mapping[str, Any], *, private: bool) -> dict[str, float]:
    """The numbers of a round; with `private` also those without noise."""
    public = {name: value for name, value in row.items() if name not in _NOT_SHOWN}
    if isinstance(rates := row.get("learning_rate"), list):
        public["learning_rate"] = dict(enumerate(rates))
    found = _numbers(public)
    return {**found, **_numbers(row.get("not_private") or {}, PRIVATE)} if private else found


def of_evaluation(row: Mapping[str, Any], data: str, *, private: bool, public: bool) -> dict[str, float]:
    """What was measured.

    Args:
        row: measures by name.
        data: what on: "validation" or "test".
        private: whether it may be logged where it is private.
        public: whether the data are public.
    """
    if not (private or public):
        return {}
    measures = {name: value for name, value in row.items() if name not in _NOT_SHOWN}
    return _numbers(measures, f"{'' if public else PRIVATE}{data}/")


def _numbers(values: Mapping[Any, Any], prefix: str = "") -> dict[str, float]:
    """Numbers under their names, those of nested ones with "/" between."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{name}"] = float(value)
    return found


def _fields(plan: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The fields of a plan, those that are no plain values as text; those that are None are left out."""
    return {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in plan.items()
        if value is not None
    }


class Place:
    """The name that a service has given to the log of a run: a line in logs.json of its folder, for a resumed run.

    Args:
        run: the run's folder; None forgets it.
        service: whose log.

    Attributes:
        run_name: that of the folder; None without one.
    """

    def __init__(self, run: str | Path | None, service: str) -> None:
        folder = None if run is None else Path(run).resolve()
        self.run_name = None if folder is None else folder.name
        self._file = None if folder is None else folder / "logs.json"
        self._service = service

    @property
    def known(self) -> str | None:
        """The name, if the run has been logged there before.

        Raises:
            InputError: the file is damaged.
        """
        return self._all().get(self._service)

    def keep(self, name: str) -> None:
        """Write it down."""
        if self._file is not None:
            write_json(self._file, {**self._all(), self._service: name})

    def _all(self) -> dict[str, str]:
        if self._file is None or not self._file.exists():
            return {}
        try:
            found = read_json(self._file)
        except ValueError as error:
            raise InputError(f"{self._file} is damaged ({error!s:.200}); delete it to log to a new place") from None
        return found if isinstance(found, dict) else {}


def package(name: str, *, module: str | None = None) -> Any:
    """A library that only this kind of log needs; the extra of sfumato that installs it has its name.

    Args:
        name: of the package.
        module: what to import, where it has another name.

    Raises:
        InputError: it is not there; says how to install it.
    """
    try:
        return import_module(module or name)
    except ImportError as error:
        raise InputError(
            f"this log needs the package {name}, which cannot be imported ({first_line(error)}); install it with: "
            f"pip install 'sfumato[{name}]'"
        ) from None


def _reason(error: Exception) -> str:
    return first_line(error)[:_LONGEST_REASON]


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
