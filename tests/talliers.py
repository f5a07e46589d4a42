"""Talliers as processes of a test, what they write, and the answers they must open."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sfumato._random import RandomSource
from sfumato.mechanisms.discrete import discrete_gaussian
from sfumato.voting.multi_party.engine import share_variance
from sfumato.voting.multi_party.peers import free_address
from sfumato.voting.multi_party.tallier import own_noise
from sfumato.voting.question import Answers, Question, added, decide

SOURCE = RandomSource.from_seed(11)
Ballots = list[tuple[str, np.ndarray]]


def question(**changes) -> Question:
    return Question(**{"queries": 30, "classes": 5, "agents": 6, "units": 16, "noise_std": 0.6, **changes})


def one_hot(asked: Question, seed: int = 0, classes: Sequence[int] | None = None) -> Ballots:
    """Each agent votes for one class a query, of these where they are given."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(classes or range(asked.classes), (asked.agents, asked.queries))
    return [(f"agent {k}", np.eye(asked.classes, dtype=np.int64)[row] * asked.units) for k, row in enumerate(chosen)]


def expected(asked: Question, ballots: Ballots, token: str, *, seed: int, talliers: int = 3) -> Answers:
    """What `decide` says with the noise that talliers of this seed add."""

    def noise(of: str, std: float, shape: tuple[int, ...]) -> np.ndarray:
        sources = [RandomSource.from_seed(seed).within(f"tallier {place}") for place in range(1, talliers + 1)]
        variance = share_variance(std, talliers)
        count = int(np.prod(shape))
        return sum(discrete_gaussian(own_noise(each, token, of), variance, count) for each in sources).reshape(shape)

    of_answers = noise("answers", asked.noise_units, (asked.queries, asked.classes))
    confident = asked.threshold is not None
    of_threshold = noise("threshold", asked.threshold_noise_units, (asked.queries,)) if confident else None
    return decide(asked, added(asked, ballots), of_answers, of_threshold)


def same(one: Answers, other: Answers) -> bool:
    pairs = ((one.answered, other.answered), (one.labels, other.labels), (one.counts, other.counts))
    return all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)


class Group:
    """Three talliers, each with a folder of its own."""

    def __init__(
        self, folder: Path, *, extra: dict[int, Sequence[str]] | None = None, common: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.addresses = [str(free_address()) for _ in range(3)]
        self.processes: list[subprocess.Popen] = []
        self._extra, self._common = extra or {}, common

    def start(self, places: Sequence[int] = (1, 2, 3), *, ready: bool = True) -> "Group":
        for place in places:
            words = [sys.executable, "-m", "sfumato", "tally", "--index", str(place), "--talliers", *self.addresses]
            words += ["--out", str(self.folder / f"{place}"), "--seed", "3", *self._common, *self._extra.get(place, ())]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            self.processes.append(subprocess.Popen(words, env=environment, **pipes))
        for process in self.processes if ready else ():
            assert process.stdout is not None
            for line in process.stdout:
                if "is connected" in line:
                    break
            else:
                raise AssertionError(process.communicate()[1])
        return self

    def ends(self, *, without: Sequence[int] = (), within: float = 15) -> list[str]:
        """What each one says in the end; every one but the killed must end by itself with code 2 and one line."""
        told = []
        for place, process in enumerate(self.processes, 1):
            _, line = process.communicate(timeout=within)
            if place not in without:
                assert process.returncode == 2, line
                assert line.count("\n") == 1, line
                assert line.startswith("sfumato: ")
                told.append(line)
        return told

    def opened(self) -> list[Path]:
        """The files of answers that any of them has."""
        return [path for path in self.folder.glob("*/questions/*.json") if "answers" in json.loads(path.read_text())]


@contextlib.contextmanager
def group(folder: Path, **given) -> Iterator[Group]:
    made = Group(folder, **given)
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.communicate()


def after(seconds: float, action) -> None:
    threading.Timer(seconds, action).start()
