"""`sfumato forecast`: whether the noise of a planned run leaves anything to learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sfumato._check import InputError
from sfumato.algorithms import ALGORITHMS
from sfumato.cli.console import Answer, Table, bar
from sfumato.cli.parse import CommonOptions

if TYPE_CHECKING:
    from torch import nn

    from sfumato.training import Plan
    from sfumato.training.forecast import Forecast

_SHOWN = 8  # modules in a table


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(CommonOptions):
    """Compare the noise of a planned run with its signal, from public facts alone; no record is read.

    Attributes:
        plan: the folder of a run that has not ended, or a plan.json.
        population: public number of units; without it that of the plan.
        epsilon: calibrate the noise to this budget; without it the plan's noise stays.
        rounds: plan so many rounds, or steps; with --epsilon.
        parameters: how many numbers are trained; without it the plan's model is built.
    """

    plan: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|PLAN.JSON")]
    population: int | None = None
    epsilon: float | None = None
    rounds: int | None = None
    parameters: int | None = None


def forecast(options: ForecastOptions) -> Answer:
    """Print it."""
    from sfumato.training.forecast import forecast_of, rounds_needed, spent, trained_sizes

    plan, about = _planned(options)
    population = options.population or plan.population
    if population is None:
        raise InputError(f"{options.plan} has no population; give --population, the public number of {plan.unit}s")
    if options.rounds is not None and options.epsilon is None:
        raise InputError("--rounds needs --epsilon, as another number of rounds needs other noise")
    if options.rounds is not None:
        field = "steps" if hasattr(plan, "steps") else "rounds"
        plan = replace(plan, **{field: options.rounds}, **({"epochs": None} if hasattr(plan, "epochs") else {}))
    sizes = {"all": options.parameters} if options.parameters else trained_sizes(plan, _built(about, options.plan))
    with bar("calibrating the noise"):
        if options.epsilon is not None:
            delta = plan.delta if options.population is None else None
            plan = plan.calibrate(epsilon=options.epsilon, delta=delta, population=population)
        plan.refuse_unready(population)
        plan = plan.for_population(population)
        epsilon = spent(plan, population)
        found = forecast_of(plan, population, sizes)
        more = None
        if found.ratio > 1:
            more = rounds_needed(plan, sizes, epsilon=epsilon, population=population)
    words = found.words(epsilon=epsilon, unit=plan.unit)
    lines: list[str | Table] = [words, *([] if found.ratio <= 1 else [_of_rounds(found, more)]), *_modules(found)]
    return Answer({**found.to_json(), "epsilon": epsilon, "rounds_needed": more, "words": words}, lines)


def _planned(options: ForecastOptions) -> tuple[Plan, dict[str, Any]]:
    """The plan, and what plan.json states with it.

    Raises:
        InputError: there is none, it is of another kind, or the run has ended.
    """
    from sfumato.runs.folder import RunFolder, read_plan
    from sfumato.training.plan import current

    place = options.plan
    if place.is_dir():
        folder = RunFolder(place)
        settings = folder.read_plan()
        if folder.statement.exists() and folder.has_ended():
            raise InputError(f"the run in {place} has ended; sfumato report {place} shows what it reached")
    elif place.exists():
        settings = read_plan(place)
    else:
        raise InputError(f"there is no plan {place}; give the folder of a run, or its plan.json")
    about = settings.pop("about", None) or {}
    name = settings.pop("plan", None)
    algorithm = ALGORITHMS.get(str(name))
    if algorithm is None or algorithm.records not in ("users", "examples"):
        of_rounds = {each: one for each, one in ALGORITHMS.items() if one.records in ("users", "examples")}
        known = ", ".join(each for each, one in of_rounds.items() if one.load().private)
        raise InputError(f"{place} is a plan of {name!r}; a forecast is for {known}")
    kind: Any = algorithm.load()
    if not kind.private:
        raise InputError(f"{place} is a plan of {name} without noise, so there is nothing to forecast")
    plan = kind.from_json(current(settings, kind))
    if plan.noise.noise_multiplier is None and options.epsilon is None:
        raise InputError(f"{place} has no noise; give --epsilon 8, for example")
    return plan, about


def _built(about: Mapping[str, Any], place: Path) -> nn.Module:
    """The model of a plan, with first weights.

    Raises:
        InputError: it cannot be built.
    """
    from sfumato.cli.models import built_again

    try:
        return built_again(about)
    except (InputError, KeyError, TypeError) as error:
        reason = f"its {error} is not stated" if isinstance(error, KeyError) else error
        raise InputError(f"the model of {place} cannot be built ({reason}); give --parameters COUNT") from None


def _of_rounds(found: Forecast, more: int | None) -> str:
    if more is None:
        return f"More rounds at this ε do not help: not even {64 * found.rounds:,} in place of {found.rounds:,}."
    return f"Or plan {more:,} rounds in place of {found.rounds:,}, at this ε."


def _modules(found: Forecast) -> Iterator[str | Table]:
    """The modules with the most noise."""
    if len(found.groups) < 2:
        return
    rows = [[each.name, f"{each.parameters:,}", f"{each.ratio:.2g}"] for each in found.groups[:_SHOWN]]
    yield Table(["module", "parameters", "noise / signal"], rows)
    if len(found.groups) > _SHOWN:
        yield f"and {len(found.groups) - _SHOWN} modules with less"
