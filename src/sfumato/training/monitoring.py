"""What a run reports while it goes on: progress, cost so far, trouble; callbacks."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from sfumato._bar import Lines, duration, in_lines
from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.accounting import Event, compose, guarantee, terms
from sfumato.accounting.guarantees import RunningCost
from sfumato.metrics.baselines import DESCRIBED, UNTRAINED, Gain, compared, untrained_gain
from sfumato.metrics.regression import FIRST, NUMBERS
from sfumato.statement.verdict import rounded_up
from sfumato.training.contribution import Task
from sfumato.training.forecast import noise_to_signal
from sfumato.training.private_sum import PrivateSum

# What a caller of `fit` may do between the rounds: log, measure, schedule, stop.
#
# Between two rounds nothing is released that was not before, so a callback changes no guarantee as long as it only
# reads the rows that it is given and the model of the round. What it gets under "not_private" came about without
# noise, and what it prints, sends or decides by that is outside of the guarantee.


class Stop(Exception):
    """Raise it in `on_round` or `on_evaluation` to end the run there: it has a statement, and can be resumed.

    The statement of a stopped run states that the choice to stop must not rest on private numbers.
    """


class Callback:
    """Inherit from it, and write the methods that you need; each process of a run calls its own."""

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Before the first round of this process.

        Args:
            plan: what plan.json holds.
            rounds: of the whole run.
            done: rounds that an earlier process did.
        """

    def on_round(self, row: dict[str, Any]) -> None:
        """After a round.

        Args:
            row: its row of metrics.jsonl: "round" from 1, "epsilon" so far, the server's "learning_rate" where it is
                known, and under "not_private" what is private.
        """

    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """After a measurement on the validation data.

        Args:
            row: its row of metrics.jsonl.
            model: what would be released now; not to be changed.
        """

    def on_checkpoint(self, round: int, folder: Path | None) -> None:
        """After a checkpoint was written.

        Args:
            round: rounds done.
            folder: of the run.
        """

    def on_end(self, result: Any) -> None:
        """After the released files were written.

        Args:
            result: what `fit` returns.
        """

    def assumptions(self) -> list[Stated]:
        """Sentences for the statement, where the callback makes known what came about without noise."""
        return []


class Callbacks(Callback):
    """Several, one after the other."""

    def __init__(self, members: Sequence[Callback]) -> None:
        for member in members:
            if not isinstance(member, Callback):
                given = f"the class {member.__name__}" if isinstance(member, type) else type(member).__name__
                raise InputError(
                    f"callbacks must be instances of sfumato.training.Callback, got {given}; inherit from it, and give "
                    "an instance"
                )
        self._members = tuple(members)

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Call all."""
        for member in self._members:
            member.on_start(plan, rounds, done)

    def on_round(self, row: dict[str, Any]) -> None:
        """Call all."""
        for member in self._members:
            member.on_round(row)

    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """Call all."""
        for member in self._members:
            member.on_evaluation(row, model)

    def on_checkpoint(self, round: int, folder: Path | None) -> None:
        """Call all."""
        for member in self._members:
            member.on_checkpoint(round, folder)

    def on_end(self, result: Any) -> None:
        """Call all."""
        for member in self._members:
            member.on_end(result)

    def assumptions(self) -> list[Stated]:
        """Those of all."""
        return [sentence for member in self._members for sentence in member.assumptions()]


# What a run has cost after a round, and what all its rounds will have cost: by the accountants of the statement.
#
# Both are upper bounds for one unit, with all that was released before the rounds. After the first 128 rounds, what a
# round has cost is reported as of one that is up to 1.6 % later: a million rounds take 900 answers of some
# milliseconds.


_BITS = 7  # of a number of rounds that are distinguished


class CostSoFar:
    """ε of the rounds of a private sum.

    Args:
        private_sum: what each round releases.
        delta: of the statement.
        before: what the run had released before its first round; None for nothing.

    Attributes:
        planned: ε of the whole run; None without any guarantee.
    """

    def __init__(self, private_sum: PrivateSum, delta: float, before: Event | None = None) -> None:
        self._rounds = private_sum.rounds
        self.planned: float | None = None
        adjacency, whole = private_sum.sampler.adjacency, private_sum.event(private_sum.rounds)
        planned = guarantee(whole if before is None else before + whole, adjacency).epsilon(delta)
        if math.isfinite(planned):
            self.planned = rounded_up(planned, 8)
            self._running = RunningCost(private_sum.event, delta, adjacency, before)

    def after(self, rounds: int) -> float | None:
        """An upper bound after so many rounds; None without any guarantee."""
        if self.planned is None:
            return None
        stride = 1 << max(0, rounds.bit_length() - _BITS)
        counted = min(self._rounds, -(-rounds // stride) * stride)
        return (
            self.planned
            if counted == self._rounds
            else min(self.planned, rounded_up(self._running.epsilon_after(counted), 8))
        )


def before_rounds(spent: Event, private_sum: PrivateSum, done: int) -> Event | None:
    """What a run has released in addition to the rounds that it has done."""
    counts = dict(terms(spent))
    for event, count in terms(private_sum.event(done)) if done else ():
        counts[event] = counts.get(event, 0) - count
    left = {event: count for event, count in counts.items() if count > 0}
    return compose(left) if left else None


# Whether a run learned anything, from what was measured: the first thing to report where it did not.
#
# Guarantees no false praise: silence means that nothing speaks against the run, not that it is good. Losses and counts
# of contributions were computed from private records without noise, measurements from the test data; the caller decides
# which of the two may be shown.


_FEW_ROUNDS = 50
_SECOND = ("auc", "log_loss")  # named where nothing else was compared

_LAST = 3
"""Rounds in a row without a finite loss, or without half of their contributions, that are called a divergence."""


_BEFORE_AND_AFTER = (
    *((name, NUMBERS[name], -1) for name in FIRST),
    ("accuracy", "accuracy", 1),
    ("auc", "area under the ROC curve", 1),
)
"""Measures that show whether the training brought anything: key, name, and 1 where more is better, -1 where less is.
An error decides where there is one: a share of values that are nearly right is no measure next to it. Of accuracy and
AUC either does: where one class is rare, a model may rank better and still predict the other one."""


Column = Sequence[float | None]


def trouble(private: Mapping[str, Column] | None, evaluation: Mapping[str, Any] | None) -> str:
    """Why the model is of no use, in a few sentences; "" where nothing speaks against it.

    Args:
        private: "units", "loss" and "non_finite" of every round; None where they may not be shown.
        evaluation: rows of the models "untrained" and "trained", as far as they are known, and of a vote's "answers",
            which are judged where no model was measured; None where they may not be shown.
    """
    if private and (reasons := diverged(private)):
        return f"The model learned nothing: {', and '.join(reasons)}."
    if not evaluation:
        return ""
    found = _no_better(evaluation) or _no_gain(evaluation) or _worse_probabilities(evaluation)
    found = found or (_COUNTS_TOO_SMALL.format(*counts) if (counts := _too_small_counts(evaluation)) else "")
    if not found:
        return ""
    if found.endswith(_TOO_FEW):
        return found
    return f"{found} {_released(evaluation)[1].get('likely_cause', '')}".strip()


def likely_cause(private_sum: PrivateSum, numbers: int, evaluation: Mapping[str, Any]) -> str:
    """What most likely kept a run from learning, and what to change: noise, clipping, too few rounds, or the rates.

    Noise is the cause where the forecast before the run (`sfumato.training.forecast`) has it above the signal. A model
    that distinguishes classes with worse probabilities than a constant's had most of its gradients cut to one length:
    examples of a rare class then count for less than their errors, and probabilities end nearer to one half than the
    shares of the classes are. In the same way large counts are predicted too small. Without noise, which keeps a model
    from it, it may also have overfitted.

    Args:
        private_sum: what ran.
        numbers: parameters that were trained.
        evaluation: as for `trouble`, which found something.
    """
    rounds, noise = private_sum.rounds, noise_to_signal(private_sum, numbers)
    if noise > 1:
        return (
            f"Likeliest cause: noise, which is {noise:.2g} times the signal. Raise ε, let more take part, or train "
            "fewer parameters."
        )
    small_counts = _too_small_counts(evaluation) is not None
    poor_probabilities = not (_no_better(evaluation) or _no_gain(evaluation) or small_counts)
    if poor_probabilities and noise == 0:
        return (
            "Likeliest cause: overfitting, by too many steps for so few examples, or gradients longer than the "
            "clipping bound. Take fewer epochs, or raise the bound and lower the learning rate by the same factor."
        )
    if poor_probabilities or small_counts:
        return (
            "Likeliest cause: the clipping bound cuts the longest gradients, those of rare classes and large counts. "
            "Raise the bound and lower the learning rate by the same factor, or scale the model's outputs on public "
            "data."
        )
    if rounds < _FEW_ROUNDS:
        return f"Likeliest cause: too few steps ({rounds}). Plan more, or raise the learning rates."
    if noise:
        return (
            "Likeliest cause: the learning rates, or a clip norm that few gradients reach, which adds noise alone. Try "
            "others on public data, ten times lower and ten times higher."
        )
    return "Likeliest cause: the learning rates. Try others on public data, ten times lower and ten times higher."


def not_finite(evaluation: Mapping[str, Any]) -> str:
    """How many test examples gave no finite output, and which measures were left out for it, in a sentence without its
    full stop; "" if none or unknown.

    Args:
        evaluation: scores of the models "untrained" and "trained", and the numbers of "examples" and "classes".
    """
    rows = {name: evaluation.get(name) or {} for name in ("untrained", "trained")}
    counts = {name: row.get("not_finite") or 0 for name, row in rows.items() if row}
    worst = max(counts, key=lambda name: counts[name], default="")
    if not worst or not counts[worst]:
        return ""
    whose = "" if len(set(counts.values())) == 1 else f" from the {worst} model"
    left_out = "measures that are not finite are left out"
    if rows[worst].get("accuracy") is not None:
        left_out = "log loss and AUC are left out" if evaluation.get("classes") == 2 else "the log loss is left out"
    of = f" of {evaluation['examples']:,} test" if evaluation.get("examples") else " test"
    examples = "example" if of == " test" and counts[worst] == 1 else "examples"
    return f"{counts[worst]:,}{of} {examples} gave no finite output{whose}; {left_out}"


def diverged(private: Mapping[str, Column]) -> list[str]:
    """What speaks for a divergence in the last rounds; only rounds that drew somebody count: others have no loss."""
    units, losses = private.get("units", []), private.get("loss", [])
    broken = private.get("non_finite", [])
    drawn = [i for i, number in enumerate(units) if number][-_LAST:]
    reasons = []
    if drawn and losses and all(losses[i] is None for i in drawn):
        rounds = "round" if len(drawn) == 1 else f"{len(drawn)} rounds"
        reasons.append(f"the loss of the last {rounds} is not finite, so the training diverged")
    lost, whole = sum(broken[i] or 0 for i in drawn) if broken else 0, sum(units[i] or 0 for i in drawn)
    if drawn and 2 * lost >= whole:
        reasons.append(f"{lost:.0f} of the last {whole:.0f} contributions were not finite and counted as zero")
    return reasons


class Watch:
    """Warns during the run of contributions that are not finite, once in a run, and of a divergence, once for all
    rounds in a row of which it is true."""

    def __init__(self) -> None:
        self._columns: dict[str, list[float | None]] = {"units": [], "loss": [], "non_finite": []}
        self._diverged = self._warned_of_zeros = False

    def add(self, row: Mapping[str, Any]) -> str:
        """Take in a row of the metrics; one line where there is something new to report, otherwise ""."""
        for name, column in self._columns.items():
            column.append(row["not_private"].get(name))
            del column[: -2 * _LAST]
        reasons = diverged(self._columns) if len(self._columns["units"]) >= _LAST else []
        starts, self._diverged = bool(reasons) and not self._diverged, bool(reasons)
        broken, units = (row["not_private"].get(name) or 0 for name in ("non_finite", "units"))
        first, self._warned_of_zeros = bool(broken) and not self._warned_of_zeros, self._warned_of_zeros or bool(broken)
        if starts:
            return (
                f"round {row['round']}: {', and '.join(reasons)}; each further round costs privacy and teaches "
                "nothing: stop, and start a new run with lower learning rates"
            )
        if first:
            return (
                f"round {row['round']}: {broken} of {units} contributions were not finite and counted as zero; look "
                "for NaN in the records, or lower the learning rates (reported once, see metrics.jsonl)"
            )
        return ""


def columns(history: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """The private figures of rows of the metrics."""
    rows = [row["not_private"] for row in history if "not_private" in row]
    return {name: [row.get(name) for row in rows] for name in ("units", "loss", "non_finite")}


_WIDE = 0.25
"""Half an interval that is wider than this share of the baseline's measure decides nothing."""
_TOO_FEW = "The test data are too few to decide: measure on more."
_COUNTS_TOO_SMALL = "The model's counts are too small: {:.4g} on average, where the test data have {:.4g}."


def _released(evaluation: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """What is compared with baselines, as a sentence begins, and its row."""
    if evaluation.get("trained"):
        return "The model is", evaluation["trained"]
    return "The answers are", evaluation.get("answers") or {}


def _no_better(evaluation: Mapping[str, Any]) -> str:
    """The first baseline that what is released does not beat in any measure, as a sentence."""
    subject, trained = _released(evaluation)
    for name, row in [*trained.get("baselines", {}).items(), *_untrained(evaluation)]:
        gains = row.get("gain") or {}
        if not gains or any(low > 0 for _, low, _ in gains.values()):
            continue
        undecided = {each: _is_undecided(gain, _value(row, each)) for each, gain in gains.items()}
        measure = min(gains, key=lambda each: (not undecided[each], each in _SECOND, each))
        few, (_, low, high) = undecided[measure], gains[measure]
        ours, other = (_value(each, measure) for each in (trained, row))
        if ours is None or other is None:
            continue
        worse = all(high < 0 for _, _, high in gains.values())
        if measure in ("auc", "accuracy") or measure.startswith("recall_at_far/"):
            low, high = max(low, -other), min(high, 1 - other)  # no share gains more than what is left
        return (
            f"{subject} {'worse' if worse else 'not measurably better'} than {DESCRIBED.get(name, name)}: "
            f"{measure_name(measure)} is {ours:.4g} against {other:.4g} on the test data (gain "
            f"{_end(low)} to {_end(high)}, 95 % interval)."
        ) + (f" {_TOO_FEW}" if few else "")
    return ""


def _is_undecided(gain: Gain, other: float | None) -> bool:
    """Whether a measure is better than the baseline's, by an interval that is too wide to say so."""
    value, low, high = gain
    return other is not None and value > 0 and (high - low) / 2 > _WIDE * abs(other)


def _worse_probabilities(evaluation: Mapping[str, Any]) -> str:
    """That a model which distinguishes classes gives them worse probabilities than a baseline does, as a sentence."""
    trained = evaluation.get("trained") or {}
    for name, row in trained.get("baselines", {}).items():
        gain = (row.get("gain") or {}).get("log_loss")
        ours, other = (_value(each, "log_loss") for each in (trained, row))
        if gain is not None and gain[2] < 0 and ours is not None and other is not None:
            return (
                f"The model's probabilities are worse than those of {DESCRIBED.get(name, name)}, though it "
                f"distinguishes classes: log loss is {ours:.4g} against {other:.4g} on the test data (gain "
                f"{_end(gain[1])} to {_end(gain[2])}, 95 % interval)."
            )
    return ""


def _too_small_counts(evaluation: Mapping[str, Any]) -> tuple[float, float] | None:
    """The predicted and the true mean of counts, where the former is too small by a fifth and by more than chance."""
    trained = evaluation.get("trained") or {}
    predicted, true = (_value(trained, key) for key in ("mean_rate", "mean_count"))
    if predicted is None or true is None:
        return None
    chance = 4 * math.sqrt(true / max(1, evaluation.get("examples") or 1))  # standard errors of a Poisson mean
    return (predicted, true) if predicted < min(0.8 * true, true - chance) else None


def _untrained(evaluation: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The model before training as a baseline, where the rows have standard errors: of embeddings and losses."""
    trained, before = evaluation.get("trained") or {}, evaluation.get("untrained") or {}
    gains: dict[str, Gain | None] = {}
    for measure in trained.get("standard_error") or ():
        better = -1 if measure in FIRST else 1
        gains[measure] = untrained_gain(trained, before, measure, better)
    return [(UNTRAINED, compared(before, gains))] if gains else []


def _value(row: Mapping[str, Any], key: str) -> float | None:
    """A measure of a row; slashes lead into nested rows."""
    value: Any = row
    for part in key.split("/"):
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def measure_name(key: str) -> str:
    """What sentences call a measure."""
    if key.startswith("recall_at_far/"):
        return f"recall at FAR {key.partition('/')[2]}"
    return NUMBERS.get(key, {"auc": "AUC"}.get(key, key.replace("_", " ")))


def _end(value: float) -> str:
    """An end of an interval with its sign."""
    return f"{value:+.2g}".replace("-", "−")


def _no_gain(evaluation: Mapping[str, Any]) -> str:
    change = ""
    for name, words, better in _BEFORE_AND_AFTER:
        before, after = ((evaluation.get(model) or {}).get(name) for model in ("untrained", "trained"))
        if before is not None and after is not None:
            if better * after > better * before:
                return ""
            change = change or f"{words} {before:.4g} before and {after:.4g} after"
            if name in FIRST:
                break
    return f"The training brought nothing on the test data: {change}." if change else ""


# Users who took part, measured as those are who did not.
#
# What it shows was computed from private records without noise, so it is private: it stays in the folder of the run and
# on its own page, and is shown nowhere else unless somebody asks for private figures.


MONITORED = "seen"
"""The name of the measurement in evaluation.json, with "untrained" and "trained"."""


_PRIVATE = "measured without noise on people who took part"


def who_took_part(task: Task, data: Any, test: Any) -> Any | None:
    """Some of those who took part, at most as many as the test has; None where the task does not ask for them.

    They stand at even distances in the data: a rule that looks at no record.
    """
    if test is None or not getattr(task, "monitors_training_users", False):
        return None
    count = min(len(data), len(test))
    return data.subset(np.arange(count) * len(data) // count)


def marked(row: dict[str, Any], users: Any) -> dict[str, Any]:
    """The row as evaluation.json has it: of how many users, and that it is private."""
    return {"not_private": _PRIVATE, "users": len(users), **row}


# Progress on stderr: a bar on a terminal; elsewhere a line now and then, for a log: round, ε, rate, time left.


class Display:
    """A context that shows the rows of the metrics as they come.

    Args:
        rounds: rounds of the whole run.
        done: rounds done before.
        visible: False shows nothing, None lines on a terminal, too.
        headline: a measurement in a few words; empty for a row that is none.
        planned: ε of all rounds; None without any guarantee.
        every: seconds between lines, > 0; a run that is shorter prints none.
    """

    def __init__(
        self,
        rounds: int,
        done: int,
        *,
        visible: bool | None,
        headline: Callable[[dict[str, Any]], str] | None = None,
        every: float = 10.0,
        planned: float | None = None,
    ) -> None:
        self._planned = "" if planned is None else f" of {rounded_up(planned, 3):.3g}"
        console = Console(stderr=True)
        self._lines = _RoundLines(rounds, done, every=every) if in_lines(visible, console) else None
        self._progress = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not visible or self._lines is not None,
        )
        self._task = self._progress.add_task("", total=rounds, completed=done)
        self._headline = headline or (lambda row: "")
        self._measured = ""

    def __enter__(self) -> "Display":
        self._progress.start()
        if self._lines is not None:
            self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        if self._lines is not None:
            self._lines.__exit__()

    def show(self, row: dict[str, Any]) -> None:
        """Show one row of metrics.jsonl."""
        if "evaluation" in row:
            self._measured = self._headline(row)
            return
        epsilon, loss = row["epsilon"], row["not_private"]["loss"]
        parts = [
            "no guarantee" if epsilon is None else f"ε {rounded_up(epsilon, 3):.3g}{self._planned}",
            "" if loss is None else f"loss {loss:.3g} (private)",
            self._measured,
        ]
        text = " · ".join(p for p in parts if p)
        self._progress.update(self._task, completed=row["round"], description=text)
        if self._lines is not None:
            self._lines.state = row["round"], text


class _RoundLines(Lines):
    """Lines of a run in rounds.

    Attributes:
        state: rounds done and what is known of the last one, in words.
    """

    def __init__(self, rounds: int, done: int, *, every: float) -> None:
        super().__init__("round", every)
        self.state: tuple[int, str] = done, ""
        self._rounds, self._before = rounds, done

    def line(self) -> str:
        """Rounds, the state and the time that is left."""
        done, text = self.state
        seconds = time.monotonic() - self._started
        rate = (done - self._before) / seconds
        left = f"{rate:.3g} rounds/s · {duration((self._rounds - done) / rate)} left" if rate else ""
        return " · ".join(filter(None, (f"sfumato: round {done:,} of {self._rounds:,}", text, left)))
