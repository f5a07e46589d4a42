"""`sfumato extrapolate`: what more clients a round and more people buy in privacy, as a table and a figure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sfumato import accounting as acc
from sfumato._check import InputError, whole
from sfumato.accounting.extrapolation import CorrelatedName, crossings
from sfumato.accounting.guarantees import Method
from sfumato.cli.console import say, say_json, table
from sfumato.cli.parse import CommonOptions, parse

_SAMPLED: tuple[Method, ...] = ("pld", "rdp", "rdp_usual_orders", "zcdp")
_ONE_USER = tuple(method for method in _SAMPLED if method != "rdp_usual_orders")


@dataclass(frozen=True, kw_only=True)
class ExtrapolateOptions(CommonOptions):
    """A run that was tuned, and the larger ones to ask about. The defaults are the EMNIST run of Xu et al. (2022).

    Attributes:
        noise_multiplier: z, std of the noise divided by the clip norm, of the run that was tuned.
        rounds: T, how often the server steps.
        clients_per_round: K, virtual clients a round of the run that was tuned.
        users_per_client: m, users in a virtual client.
        populations: numbers of users N to ask about; 3e6 is a way to write three million.
        multipliers: factors c on both the clients a round and the noise, which keep the signal-to-noise ratio.
        noises: kinds of correlated noise (DP-FTRL) to compare with at equal utility: tree, banded, blt, bisr; their
            curves are in the figure.
        delta_exponent: delta is N to the power of minus this.
        figure: draw epsilon against the users of a round into this PNG file.
    """

    noise_multiplier: float = 0.62
    rounds: int = 200
    clients_per_round: int = 32
    users_per_client: int = 8
    populations: tuple[float, ...] = (3e6, 1e7)
    multipliers: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    noises: tuple[CorrelatedName, ...] = ()
    delta_exponent: float = 1.1
    figure: Path | None = None


def extrapolate(argv: Sequence[str]) -> int:
    about = "Privacy against computation: epsilon when a tuned run gets more clients a round, on more people."
    options = parse(ExtrapolateOptions, argv, command="extrapolate", about=about)
    for population in options.populations:
        whole(population=population)
    if not options.populations or not options.multipliers:
        raise InputError("give at least one of --populations and one of --multipliers")
    rows = acc.extrapolate(
        noise_multiplier=options.noise_multiplier,
        rounds=options.rounds,
        clients_per_round=options.clients_per_round,
        users_per_client=options.users_per_client,
        populations=[int(population) for population in options.populations],
        multipliers=options.multipliers,
        methods=_SAMPLED,
        noises=options.noises,
        delta_exponent=options.delta_exponent,
    )
    met = crossings(rows)
    if options.figure is not None:
        _draw(rows, options.figure)
    if options.json:
        told = [{"population": people, "noise": noise, "users_per_round": users} for people, noise, users in met]
        say_json({"rows": [row.to_json() for row in rows], "crossings": told, "figure": options.figure})
        return 0
    _show(rows)
    _show_crossings(rows, met)
    if options.figure is not None:
        say(f"figure: {options.figure}")
    return 0


def _draw(rows: Sequence[acc.ExtrapolationRow], path: Path) -> None:
    from sfumato.report import extrapolation_figure

    if path.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"--figure {path}: the figure is a PNG or SVG file; give a name that ends in .png or .svg")
    if not path.parent.is_dir():
        raise InputError(f"--figure {path}: there is no folder {path.parent}; make it first")
    extrapolation_figure(rows, path)


def _show(rows: Sequence[acc.ExtrapolationRow]) -> None:
    _table(
        rows,
        {
            "users a round": lambda row: f"{row.users_per_round:g}",
            "sampling rate": lambda row: f"{row.sampling_rate:.3g}",
            "noise": lambda row: f"{row.noise_multiplier:g}",
            "delta": lambda row: f"{row.delta:.3g}",
        },
    )
    say("\nepsilon of one user, by method" + (" and for correlated noise" if rows[0].epsilon_correlated else ""))
    sampled = {name: partial(_epsilon, kind="epsilon_user", name=name) for name in _ONE_USER}
    correlated = {name: partial(_epsilon, kind="epsilon_correlated", name=name) for name in rows[0].epsilon_correlated}
    _table(rows, sampled | correlated)
    say("\nepsilon of a virtual client, by method")
    _table(rows, {name: partial(_epsilon, kind="epsilon", name=name) for name in _SAMPLED})
    say(
        "\nThe paper's convention is the virtual client: there, neighbours differ in a whole virtual client, and one "
        "user inside a group can move the sum twice as far. Published figures by RDP are those of rdp_usual_orders; "
        "rdp takes more orders and is never larger."
    )


def _table(rows: Sequence[acc.ExtrapolationRow], columns: Mapping[str, Callable[[acc.ExtrapolationRow], str]]) -> None:
    """One of several narrow tables, as all columns in one do not fit into a terminal."""
    lines = [[f"{row.population:,}", f"{row.multiplier:g}", *(cell(row) for cell in columns.values())] for row in rows]
    table(["people", "c", *columns], lines)


def _epsilon(row: acc.ExtrapolationRow, *, kind: str, name: str) -> str:
    value = getattr(row, kind)[name]
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def _show_crossings(rows: Sequence[acc.ExtrapolationRow], met: Sequence[tuple[int, str, float]]) -> None:
    if not rows[0].epsilon_correlated:
        return
    say(
        "\nCorrelated noise (DP-FTRL) has the same error of prefix sums, assumes no sampling, and covers a user who "
        "contributes or contributes nothing; users take part as rarely as the population allows."
    )
    for population, noise, users in met:
        say(f"with {population:,} people, {noise} noise and sampled noise cost the same at {users:,.0f} users a round")
    if not met:
        say("no two of these curves cross between the multipliers that were asked about")
