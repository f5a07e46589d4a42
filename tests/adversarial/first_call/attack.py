"""An attack from end to end: from released models alone, was a record there?

For each form of code that keeps something of the first call, or that couples at some steps, models are trained at a
given ε with and without the target, by the public way, under the run's own noise and with everything checked. The
attacker knows all other records and the code. It trains both worlds once without noise, and guesses by which of the
two the released weights, or the noisy counts of a vote, are nearer; this decides on a threshold before any game is
played.

Where code keeps something does not change what it computes: forms that release the same numbers, bit for bit, in both
worlds without noise and in six games are one game, which is played once.

Where TPR > e^ε FPR + δ at 99 % confidence, the printed ε is refuted. Of the forms that are refused, nothing is
released.

    cd tests/adversarial/first_call
    python attack.py --forms "forward: mean of the first call in class attribute" --repeats 300
    python attack.py --accepted --jobs 2 --json attack.json

References:
    Clopper, Pearson (1934), exact limits of a share. Jagielski, Ullman, Oprea: Auditing Differentially Private Machine
    Learning. NeurIPS 2020 (a lower bound on ε from true and false positives).
"""

import argparse
import hashlib
import json
import math
import random
import sys
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from adversarial.first_call.specimen import SPECIMENS
from adversarial.first_call.ways import CASES, DELTA, PLANS, RATE, WAYS, Setting
from sfumato._check import InputError

CONFIDENCE = 0.99
UNITS = {way: 24 if way in PLANS else 192 for way in WAYS}
"""The bound and the noise do not depend on how many take part; few users keep 600 trainings short."""


class Growing(torch.optim.SGD):
    """SGD whose weights also grow by a public factor in each step."""

    def __init__(self, parameters: Iterable[Any], grows: float) -> None:
        super().__init__(parameters, lr=RATE)
        self._grows = grows

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(self._grows)


@dataclass(frozen=True)
class Games:
    """What came of a form.

    Attributes:
        form, way: of `first_call.specimen.SPECIMENS`.
        epsilon: of the statement.
        repeats: trainings with the target, and as many without.
        refusal: why nothing was released; None where models were.
        true, false: shares of the models with and without the target that were taken to be with it.
        true_low, true_high: 99 % limits of the former.
        allowed: the highest true positive rate that (ε, δ) allows at the upper limit of the false positives.
        epsilon_low: ε is at least so much, at 99 % confidence.
    """

    form: str
    way: str
    epsilon: float
    repeats: int
    refusal: str | None = None
    true: float = math.nan
    false: float = math.nan
    true_low: float = math.nan
    true_high: float = math.nan
    allowed: float = math.nan
    epsilon_low: float = math.nan

    @property
    def verdict(self) -> str:
        if self.refusal is not None:
            return "refused"
        return "REFUTED" if self.epsilon_low > self.epsilon else "within its bound"

    def row(self) -> str:
        if self.refusal is not None:
            return f"| {self.form} | {self.way} | – | – | – | – | – | refused: {self.refusal[:60]} |"
        return (
            f"| {self.form} | {self.way} | {self.epsilon:.3f} | {self.true:.3f} ({self.true_low:.3f}–"
            f"{self.true_high:.3f}) | {self.false:.3f} | {self.allowed:.3f} | {self.epsilon_low:.2f} | {self.verdict} |"
        )


HEAD = (
    "| form | way | ε | TPR (99 %) | FPR | TPR allowed | ε at least | verdict |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def limits(hits: int, games: int, confidence: float) -> tuple[float, float]:
    """Clopper and Pearson's: each end is missed with probability (1 − confidence) / 2 at most."""
    tail = (1 - confidence) / 2
    low = float(stats.beta.ppf(tail, hits, games - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - tail, hits + 1, games - hits)) if hits < games else 1.0
    return low, high


def allowed(false: float, epsilon: float, delta: float) -> float:
    """The highest true positive rate of any attack.

    >>> round(allowed(0.5, 0.2, 0.0), 3)
    0.591
    """
    return min(1.0, math.exp(epsilon) * false + delta, 1 - math.exp(-epsilon) * (1 - delta - false))


def least_epsilon(true: int, false: int, games: int, delta: float) -> float:
    """A lower bound on ε: by true positives against false ones, or by what was not taken to be there.

    Of the four limits that are used each is missed with probability (1 − `CONFIDENCE`) / 4 at most.
    """
    confidence = 1 - (1 - CONFIDENCE) / 2
    (true_low, true_high), (false_low, false_high) = limits(true, games, confidence), limits(false, games, confidence)
    found = [0.0]
    for more, less in ((true_low, false_high), (1 - false_high, 1 - true_low), (false_low, true_high)):
        if more > delta:
            found.append(math.log((more - delta) / less))
    return max(found)


def released(form: str, way: str, *, there: bool, epsilon: float | None, seed: int) -> Tensor:
    """The weights of a released model; of a vote its noisy counts, or without noise the ballots added up."""
    specimen = SPECIMENS[form]
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    setting = Setting(
        there=there,
        optimizer=lambda parameters: Growing(parameters, specimen.grows),
        epsilon=epsilon,
        seed=seed,
        units=UNITS[way],
    )
    model = WAYS[way](specimen, specimen.build(), setting)
    if setting.sums:
        return torch.cat([each.flatten() for each in setting.answers or setting.sums]).double()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).double()


def fingerprint(form: str, way: str, epsilon: float) -> str | None:
    """A digest of what is released in both worlds without noise and in six games; None where it is refused."""
    torch.set_num_threads(1)
    whole = hashlib.sha256()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for there in (False, True):
                for noise, seed in ((None, 0), (epsilon, 0), (epsilon, 1), (epsilon, 2)):
                    whole.update(released(form, way, there=there, epsilon=noise, seed=seed).numpy().tobytes())
        except InputError:
            return None
    return whole.hexdigest()


def attack(form: str, way: str, epsilon: float, repeats: int) -> Games:
    """Play the games of a form."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            without, with_it = (released(form, way, there=there, epsilon=None, seed=0) for there in (False, True))
            direction, middle = with_it - without, (with_it + without) / 2
            hits = [
                sum(
                    float((released(form, way, there=there, epsilon=epsilon, seed=seed) - middle) @ direction) > 0
                    for seed in range(there, 2 * repeats, 2)
                )
                for there in (False, True)
            ]
        except InputError as error:
            return Games(form, way, epsilon, repeats, refusal=str(error))
    false, true = hits
    low, high = limits(true, repeats, CONFIDENCE)
    return Games(
        form=form,
        way=way,
        epsilon=epsilon,
        repeats=repeats,
        true=true / repeats,
        false=false / repeats,
        true_low=low,
        true_high=high,
        allowed=allowed(limits(false, repeats, CONFIDENCE)[1], epsilon, DELTA),
        epsilon_low=least_epsilon(true, false, repeats, DELTA),
    )


def main() -> None:
    """Play, print a table, and end with 1 where an ε is refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", nargs="*", default=[], help="names of specimens, or beginnings of names")
    parser.add_argument("--ways", nargs="*", default=["fit"], choices=WAYS)
    parser.add_argument("--accepted", action="store_true", help="all coupled forms that are not refused")
    parser.add_argument("--list", action="store_true", help="print the names of all forms, and do nothing")
    parser.add_argument("--repeats", type=int, default=300, help="trainings with the target, and as many without")
    parser.add_argument("--epsilon", type=float, default=0.2)
    parser.add_argument("--jobs", type=int, default=1, help="processes; each plays forms of its own")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    chosen = [
        (form, way)
        for form, way in CASES
        if way in options.ways
        and (any(form.startswith(begin) for begin in options.forms) or not options.forms)
        and (options.forms or SPECIMENS[form].expected == "refused")
    ]
    if options.list or not chosen or not (options.forms or options.accepted):
        print("\n".join(f"{way}: {form}" for form, way in chosen) or "no form begins so; see --list")
        return
    print(HEAD)
    found = []
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        same: dict[str, list[tuple[str, str]]] = {}
        digests = pool.map(fingerprint, *zip(*chosen), [options.epsilon] * len(chosen))
        for number, (each, digest) in enumerate(zip(chosen, digests)):
            same.setdefault(digest or f"refused {number}", []).append(each)
        jobs = [pool.submit(attack, *group[0], options.epsilon, options.repeats) for group in same.values()]
        for job, group in zip(jobs, same.values()):
            for form, way in group:
                games = replace(job.result(), form=form, way=way)
                found.append(games)
                print(games.row(), flush=True)
    if options.json is not None:
        rows = [{**asdict(games), "verdict": games.verdict} for games in found]
        options.json.write_text(json.dumps(rows, indent=1, allow_nan=True) + "\n", encoding="utf-8")
    sys.exit(any(games.verdict == "REFUTED" for games in found))


if __name__ == "__main__":
    main()
