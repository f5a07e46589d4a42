"""Options of the training commands, where they come from, and the message at the start of a run."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato import __version__, runs
from sfumato._check import InputError, between, guess, whole
from sfumato._types import PLAN_FORMAT
from sfumato.algorithms import ALGORITHMS, command_of
from sfumato.cli.commands import COMMANDS
from sfumato.cli.console import leads, plain
from sfumato.cli.models import ClassifierOptions, ModelOptions
from sfumato.cli.parse import (
    CommonOptions,
    answer_help,
    as_flags,
    fields,
    find,
    gathered,
    read_flags,
    read_settings,
    shortened,
)
from sfumato.cli.sources import DataOptions, ExampleDataOptions, RatingOptions, ReadingOptions, fitted
from sfumato.training.cadence import RunSettings

if TYPE_CHECKING:
    from sfumato.integrations import Log


# How many CPU threads a command computes on.


_MOST_THREADS = 1024


def use_threads(threads: int | None) -> None:
    """Compute on so many threads; None leaves it to torch.

    Raises:
        InputError: it is no number of threads.
    """
    if threads is None:
        return
    whole(threads=threads)
    between(1, _MOST_THREADS, threads=threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # also keeps a team of processes from dividing the cores
    import torch  # late: a command says what is wrong before it

    torch.set_num_threads(threads)


# `--log KIND:WHERE` → callbacks that log the run there.


_URI = re.compile(r"[a-z][a-z0-9+-]*:")


def open_logs(words: Sequence[str], out: Path, *, private: bool, public_evaluation: bool) -> list[Log]:
    """The logs of a run.

    Args:
        words: as given: tensorboard:DIR, wandb:PROJECT, mlflow:EXPERIMENT or mlflow:URI#EXPERIMENT.
        out: folder of the run, whose name is the log's.
        private: log what is private, too.
        public_evaluation: what was measured may be logged.

    Raises:
        InputError: no such kind, a place of no use, the same one twice, or its package is missing.
    """
    if not words and (private or public_evaluation):
        flag = "--log-private" if private else "--public-evaluation"
        raise InputError(f"{flag} says what is logged, and there is no log; give --log tensorboard:DIR, for example")
    twice = next((word for word in words if words.count(word) > 1), None)
    if twice is not None:
        raise InputError(f"--log {shortened(twice)} is given twice; give each log once")
    return [_opened(word, out, private=private, public_evaluation=public_evaluation) for word in words]


def _opened(word: str, out: Path, **what: bool) -> Log:
    kind, _, where = word.partition(":")
    if kind not in _KINDS or not where:
        hint = "" if kind in _KINDS else guess(kind, _KINDS)
        raise InputError(
            "--log must be tensorboard:DIR, wandb:PROJECT, mlflow:EXPERIMENT or mlflow:URI#EXPERIMENT, got "
            f"{shortened(word)}{hint}"
        )
    return _KINDS[kind](where, out, what)


def _tensorboard(where: str, out: Path, what: dict[str, Any]) -> Log:
    from sfumato.integrations import TensorBoard

    return TensorBoard(Path(where) / out.resolve().name, **what)


def _wandb(where: str, out: Path, what: dict[str, Any]) -> Log:
    from sfumato.integrations import WandB

    return WandB(where, run=out, **what)


def _mlflow(where: str, out: Path, what: dict[str, Any]) -> Log:
    from sfumato.integrations import MLflow

    uri, _, experiment = where.partition("#") if _URI.match(where) else ("", "", where)
    named = {"experiment": experiment} if experiment else {}
    return MLflow(**named, uri=uri or None, run=out, **what)


_KINDS: dict[str, Callable[[str, Path, dict[str, Any]], Log]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


# Options of the training commands, and where they come from: a run to go on with, a settings file, the flags.


_INSTEAD = (("epsilon", "noise-std"), ("noise-std", "epsilon"), ("epochs", "steps"), ("steps", "epochs"))
"""Of these, one given on the command line takes the place of the other in a file."""


@dataclass(frozen=True, kw_only=True)
class FolderOptions(CommonOptions):
    """The run of any plan.

    Attributes:
        out: folder of the run; it must be new or empty. Without it, the next free one of runs/COMMAND-1, -2, …
        resume: go on with the run in this folder; everything else is read from its plan.json.
        dry_run: print the plan, its noise and its statement, and train nothing.
        threads: CPU threads; None leaves it to torch.
    """

    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingRun(RunSettings, FolderOptions):
    """The run of a plan that trains in rounds.

    Attributes:
        resume: go on with the run in this folder; everything else is read from its plan.json. Where its records have
            moved, --data says where to.
        dry_run: print the plan, its noise and its statement, and train nothing. With --data, model and data are tried
            out as at the start of a run.
        log: where to log, several if need be: tensorboard:DIR, wandb:PROJECT, mlflow:EXPERIMENT or
            mlflow:URI#EXPERIMENT. DIR gets a folder for each run. What was computed without noise is left out.
        log_private: log what was computed without noise, too, under names that begin with private/: losses, cohort
            sizes, shares that were clipped, seconds, measurements. The guarantee does not cover it.
        public_evaluation: the validation and test data are public, so what was measured on them is logged.
    """

    evaluate_every: int | None = None
    prefix_cache: Path | None = None
    log: tuple[str, ...] = ()
    log_private: bool = False
    public_evaluation: bool = False

    def settings(self) -> dict[str, Any]:
        """Those of `RunSettings`, which `fit` takes, too."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(RunSettings)}


@dataclass(frozen=True, kw_only=True)
class EmbeddingRun(TrainingRun):
    """The run of a plan that trains embeddings.

    Attributes:
        far: false accept rates to report recall at; texts have none.
    """

    far: tuple[float, ...] = (1e-3,)


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """The budget; or say how much noise with --noise.

    Attributes:
        epsilon: the budget of the whole run for one user (dpsgd: for one example; labeldp pro: for one label); the
            noise is calibrated to it. With it, --delta.
    """

    epsilon: float | None = None


def grouped(does: str = "All options.", /, **groups: tuple[Any, str]) -> Any:
    """A class of options in groups.

    Args:
        does: what the command does.
        groups: by name, in the order of the help: a dataclass, and what the help says of it.
    """
    kind = dataclasses.make_dataclass("Options", [(name, group) for name, (group, _) in groups.items()], kw_only=True)
    kind.__doc__ = f"{does}\n\nAttributes:\n" + "".join(f"    {name}: {about}\n" for name, (_, about) in groups.items())
    return kind


@functools.cache
def options_of(name: str) -> Any:
    """The class of all options of an algorithm's command that trains in rounds."""
    return grouped("All options.", **groups_of(name))


def groups_of(name: str) -> dict[str, tuple[Any, str]]:
    """The groups of these options by name, as `grouped` takes them."""
    plan, examples = ALGORITHMS[name].load(), ALGORITHMS[name].records == "examples"
    how = "How private the run is: --epsilon (and --delta below), or a noise multiplier (--noise) below."
    decide = f"; sampling, bound, noise and {'steps' if examples else 'rounds'} decide the guarantee"
    return dict(
        run=(TrainingRun if examples else EmbeddingRun, "Where the run goes, and how it is watched and saved."),
        data=(
            ExampleDataOptions if examples else DataOptions,
            "The records, and which of them are kept out of training to test on.",
        ),
        model=(ClassifierOptions, "The model.") if examples else (ModelOptions, "The backbone, or the model of texts."),
        **({"budget": (BudgetOptions, how)} if plan.private else {}),
        plan=(plan, f"What is trained, and how{decide if plan.private else ''}."),
    )


def training_options(
    name: str, argv: Sequence[str], *, command: str | None = None, usual: Mapping[str, Any] | None = None
) -> Any:
    """The command's options: of the run to go on with, over them the settings file's, over them the flags.

    Args:
        name: of the algorithm.
        argv: the words behind the command's name.
        command: a command that trains by this algorithm with more options; None for the algorithm's own.
        usual: settings of a new run of this command where nothing else is given, by field name.

    Raises:
        InputError: an unknown option, a wrong type, or a folder or file to read settings from that is of no use.
    """
    command = command or ALGORITHMS[name].words
    options, about = COMMANDS[command].kind(), COMMANDS[command].about()
    answer_help(options, argv, command=command, about=about)
    kind = ALGORITHMS[name].load()
    words: list[str] = []
    resume, config = find(argv, "resume"), find(argv, "config")
    sources: list[Path] = [] if resume is None else [Path(resume) / "plan.json"]
    sources += [] if config is None else [Path(config)]
    if resume is not None:
        runs.RunFolder(resume).read_plan()  # raises what is wrong with the folder
    later = list(argv)  # a part that they choose is not read from a file
    for file in reversed(sources):
        settings = _without_about(read_settings(file), kind, file, known=fields(options))
        for given, other in _INSTEAD:
            if find(argv, given) is not None and find(argv, other) is None:
                settings.pop(other.replace("-", "_"), None)  # the command line decides
        _replaced_noise(settings, argv)
        if _reads_store(settings, find(argv, "data")):
            settings = {name: value for name, value in settings.items() if name not in _OF_SOURCES}
        found = as_flags(settings, options, source=file, later=later)
        words, later = [*found, *words], [*found, *later]
    if usual and resume is None:
        instead = {mine.replace("-", "_") for given, mine in _INSTEAD if find(later, given) is not None}
        chosen = {setting: value for setting, value in usual.items() if setting not in instead}
        words = [*as_flags(chosen, options, source=command, later=later), *words]
    words += gathered(argv, "log")
    found = read_flags(options, words, command=command, about=about)
    given = frozenset(word.partition("=")[0][2:].replace("-", "_") for word in words if word.startswith("--"))
    if isinstance(found.data, DataOptions) and found.data.text is not None:  # others are known when they are read
        found = replace(found, plan=fitted(found.plan, "texts", given))
    return replace(found, run=replace(found.run, chosen=given))


_OF_SOURCES = (
    *("schema", "text", "oov_buckets", "size", "channels", "class_names", "num_classes", "rating_classes"),
    *(field.name for kind in (ReadingOptions, RatingOptions) for field in dataclasses.fields(kind)),
)
"""What says how records are read; a run whose records lie in a store goes on without it."""


def _reads_store(settings: Mapping[str, Any], data: str | None) -> bool:
    """Whether all records of a run are read from a store, which holds them as they were read when it was made.

    Args:
        settings: of the run.
        data: where the records are now; None for where the run has them.
    """
    from sfumato.data.store.seal import is_store  # late: --help needs no pyarrow

    place = data or settings.get("data")
    others = settings.get("test") or settings.get("negatives")
    return isinstance(place, str) and not others and is_store(Path(place))


def _replaced_noise(settings: dict[str, Any], argv: Sequence[str]) -> None:
    """Leave out of a file's settings the noise multiplier where an epsilon is given, and the other way round."""
    given = find(argv, "noise")
    number = given is not None and re.fullmatch(r"[0-9.eE+-]+", given) is not None
    if number or find(argv, "noise.noise-multiplier") is not None:
        settings.pop("epsilon", None)
    elif find(argv, "epsilon") is not None:
        noise = settings.get("noise")
        if isinstance(noise, dict):
            settings["noise"] = {name: value for name, value in noise.items() if name != "noise_multiplier"}
        elif isinstance(noise, int | float):
            settings.pop("noise")
        settings.pop("noise.noise_multiplier", None)


_NO_OPTIONS = ("plan", "format", "about", "noise_multipliers")
"""What a plan.json holds besides options: its name, the data, and what was calibrated of a private synthesizer."""

_OF_PARTS = {name for name, each in ALGORITHMS.items() if each.records in ("users", "examples", "agents")}
"""Plans whose plan.json says in which format it is, since they are made of parts."""


def _without_about(settings: dict[str, Any], kind: type[Any], file: Path, *, known: dict[str, Any]) -> dict[str, Any]:
    """A plan.json as settings: what it states about the data and the model, next to the plan's fields."""
    if "plan" not in settings:
        return settings
    if settings["plan"] in _OF_PARTS and settings.get("format") != PLAN_FORMAT and file.name == "plan.json":
        raise InputError(
            f"{file} is of an earlier version, whose runs cannot go on here; start a new one, or see its results with: "
            f"sfumato report {file.parent}"
        )
    if settings["plan"] != kind.name:
        command = command_of(settings["plan"])
        raise InputError(f"{file} is the plan of a {settings['plan']} run; use sfumato {command}")
    about = settings.get("about") or {}
    rest = {name: value for name, value in settings.items() if name not in _NO_OPTIONS}
    return {**{name: value for name, value in about.items() if name in known}, **rest}


def free_folder(name: str, run: Any) -> Path:
    """Where the run goes; never onto something that is there."""
    if run.resume is not None:
        if run.out is not None and run.out != run.resume:
            raise InputError("give --resume RUN or --out DIR: a run goes on in its own folder")
        return run.resume
    if run.out is not None:
        taken = run.out.exists() and not (run.out.is_dir() and not any(run.out.iterdir()))
        if taken and leads() and not run.dry_run:  # of several processes, the first makes the folder
            runs.RunFolder(run.out).start()  # refuses it in its own words
        return run.out
    number = 1
    while (free := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return free


def start_line(out: Path, command: str, *, ended: str | None = None) -> str:
    """Where a run is, with how it goes on after a stop or that it has ended.

    Args:
        out: its folder.
        command: the words of its command.
        ended: what is not done again in a run that is finished; None for one that goes on.
    """
    how = f"go on after a stop with: sfumato {command} --resume {out}"
    return f"run: {out} ({how if ended is None else f'the run is finished: nothing is {ended} again'})"


def about_run(*groups: Any, **more: Any) -> dict[str, Any]:
    """What plan.json states with the plan: enough to go on with the run.

    Args:
        groups: of options.
        more: by name.
    """
    about = {name: value for group in groups for name, value in asdict(group).items()}
    about |= {**more, "version": __version__}
    if about.get("store") is not None:  # where the records are found again, already as numbers
        about["data"], about["store"] = about["store"], None
    return plain(about)
