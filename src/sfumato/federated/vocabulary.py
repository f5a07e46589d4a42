"""A vocabulary that is counted in private texts: which words are released tells little of any one user.

Each user votes for at most m of their distinct words, drawn by the run's randomness from the user's name alone, with
weight 1/sqrt(m) each: a user moves the votes by at most 1 in L2 norm. Every vote gets Gaussian noise, and the words
above a threshold are released, without their votes.

A word that a single user holds would give that user away by being there at all, noise or no noise. The threshold is so
high that with probability 1 - threshold_delta none of such words of a user is released. All else is a function of the
noisy votes for everybody else's words, whose noise is independent of that. So the cost is that of the Gaussian
mechanism and of one that fails with probability threshold_delta and tells nothing otherwise, composed:
`Gaussian(noise_multiplier) + ApproximateDP(0, threshold_delta)`.

References:
    Korolova, Kenthapadi, Mishra, Ntoulas: Releasing Search Queries and Clicks Privately. WWW 2009.
    Wilson, Zhang, Lam, Desfontaines, Simmons-Marengo, Gipson: Differentially Private SQL with Bounded User
    Contribution. PoPETs 2020, section 3.5.

>>> rule = PrivateVocabulary(noise_multiplier=2.0, words_per_user=16, threshold_delta=1e-6)
>>> round(rule.threshold, 4)  # 1/4 + 2 z, where 16 normal numbers are all below z but for a chance of 1e-6
10.8221
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato._types import Adjacency
from sfumato.accounting import ApproximateDP, Event, Gaussian, Statement
from sfumato.accounting.statement.delta import default_delta
from sfumato.data.examples.tokens import tokens_of
from sfumato.data.text.records import records
from sfumato.runs import Facts, Run

FILE = "vocabulary.txt"
"""Where a run puts the words, one a line, as `--vocabulary` reads them."""

_PHASE = "vocabulary"


@dataclass(frozen=True, kw_only=True)
class PrivateVocabulary:
    """How words are chosen.

    Attributes:
        noise_multiplier: std of the noise on a vote, > 0; votes of one user have L2 norm at most 1.
        words_per_user: m, distinct words that a user votes for at most, >= 1.
        threshold_delta: chance that any word which only one user holds is released, in (0, 1).
        size: words that are released at most, those with the highest noisy votes; None for all above the threshold.
        delta: of the statement, above threshold_delta; None for what a run of as many users has by itself.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    noise_multiplier: float
    words_per_user: int = 64
    threshold_delta: float = 1e-7
    size: int | None = None
    delta: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        _check.positive(noise_multiplier=self.noise_multiplier)
        _check.whole(words_per_user=self.words_per_user)
        _check.between(0, 1, ends="()", threshold_delta=self.threshold_delta)
        if self.size is not None:
            _check.whole(size=self.size)
        if self.delta is not None:
            _check.between(self.threshold_delta, 1, ends="()", delta=self.delta)

    @property
    def threshold(self) -> float:
        """What the noisy votes for a word must be above."""
        each = self.threshold_delta / self.words_per_user  # of at most so many words: the chances add up
        return self.weight + self.noise_multiplier * float(norm.isf(each)) * (1 + 1e-12)

    @property
    def weight(self) -> float:
        """Of one vote."""
        return self.words_per_user**-0.5

    def event(self, adjacency: Adjacency) -> Event:
        """What the release costs one user, who is absent or blanked (`zero_out`) in the neighbouring data."""
        if adjacency == "replace":
            raise InputError("a vocabulary is accounted for add_remove and zero_out, not for replace")
        return Gaussian(self.noise_multiplier) + ApproximateDP(0.0, self.threshold_delta, adjacency)

    def release(self, run: Run, words: Mapping[str, set[str]], *, adjacency: Adjacency = "add_remove") -> list[str]:
        """Release the vocabulary as a phase of a run, before its rounds.

        Args:
            run: an open run that has started; its ledger gets the cost.
            words: the distinct words of each user, by name; see `words_by_user`.
            adjacency: the run's.

        Returns:
            the words, those with the highest noisy votes first.
        """

        def draw(source: RandomSource) -> dict[str, Tensor]:
            text = "\n".join(self._chosen(words, source)).encode("utf-8", "surrogatepass")
            return {"words": torch.frombuffer(bytearray(text + b"\n"), dtype=torch.uint8)}

        found = run.release(_PHASE, self.event(adjacency), draw, threshold=self.threshold)
        return found["words"].numpy().tobytes().decode("utf-8", "surrogatepass").split()

    def run(
        self, path: Path | str, *, out: Path | str | None = None, user: str | None = None, input: str | None = None
    ) -> tuple[list[str], Statement]:
        """Release the vocabulary of a file in a run of its own.

        The statement is for the vocabulary alone: what is trained with it on the same texts has one of its own, and
        both costs add up (`sfumato ledger merge`).

        Args:
            path: as for `sfumato.data.text_users`.
            out: a new folder for plan, ledger, statement and the words in `vocabulary.txt`; None keeps them in memory.
            user, input: as there.

        Returns:
            the words and the statement.

        Raises:
            InputError: the file is of no use, there are fewer than two users, or no word is above the threshold.
        """
        words = words_by_user(records(Path(path), user=user, text=input))
        if len(words) < 2:
            raise InputError(f"{path} has texts of {len(words)} users; a private count needs at least 2")
        delta = default_delta(len(words)) if self.delta is None else self.delta
        if delta <= self.threshold_delta:
            raise InputError(
                f"threshold_delta must be below the statement's delta, {delta:g} for {len(words):,} users, got "
                f"{self.threshold_delta:g}; lower it"
            )
        facts = Facts(
            unit="user",
            adjacency="add_remove",
            population=len(words),
            delta=delta,
            sampling="everyone",
            mechanism=f"votes for at most {self.words_per_user} words of each user, noise multiplier "
            f"{self.noise_multiplier:g}, released above {self.threshold:.4g}",
            attained=False,
            assumptions=(
                "The way in which texts are divided into words is public, and so is how many users there are.",
            ),
        )
        with Run.open(out, plan={"plan": _PHASE, **asdict(self)}, seed=self.seed) as run:
            run.start(_digest(words))
            chosen = self.release(run, words)
            statement = run.finish({}, facts)
            if not chosen:
                raise InputError(
                    f"no word is above the threshold of {self.threshold:.4g} votes of {self.weight:.3g}, of "
                    f"{len(words):,} users; lower words_per_user or noise_multiplier. What was spent is spent"
                )
            if run.folder is not None:
                write_atomic(run.folder.path / FILE, "".join(f"{word}\n" for word in chosen).encode("utf-8"))
        return chosen, statement

    def _chosen(self, words: Mapping[str, set[str]], source: RandomSource) -> list[str]:
        votes: dict[str, int] = {}
        for user, held in words.items():
            for word in _votes_of(user, held, self.words_per_user, source):
                votes[word] = votes.get(word, 0) + 1
        known = sorted(votes)
        noisy = self.weight * np.array([votes[word] for word in known], np.float64)
        source.stream("vote noise").add_normal(noisy, std=self.noise_multiplier)
        best = np.argsort(-noisy, kind="stable")
        best = best[noisy[best] > self.threshold][: self.size]
        return [known[place] for place in best.tolist()]


def words_by_user(texts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The distinct words of each user, from records of a user and a text; memory grows with them."""
    found: dict[str, set[str]] = {}
    for user, text in texts:
        held = tokens_of(text)
        if held:
            found.setdefault(user, set()).update(held)
    return found


def _votes_of(user: str, held: set[str], most: int, source: RandomSource) -> list[str]:
    """At most so many of a user's words; nobody else changes which."""
    words = sorted(held)
    if len(words) <= most:
        return words
    return [words[place] for place in source.stream("votes", user).permutation(len(words))[:most].tolist()]


def _digest(words: Mapping[str, set[str]]) -> str:
    """Of everybody's words, in whatever order they were read."""
    digest = hashlib.sha256()
    for user in sorted(words):
        digest.update(repr((user, sorted(words[user]))).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
