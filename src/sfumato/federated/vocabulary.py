"""A vocabulary that is counted in private texts: which words are released reveals little of any one user.

Each user votes for at most m of their distinct words, drawn by the run's randomness from the user's name alone, with
weight 1/sqrt(m) each: a user moves the votes by at most 1 in L2 norm. Every vote gets Gaussian noise, and the words
above a threshold are released, without their votes.

A word that a single user holds would give that user away by being there at all, noise or no noise. The threshold is so
high that with probability 1 - threshold_delta none of such words of a user is released. All else is a function of the
noisy votes for everybody else's words, whose noise is independent of that. So the cost is that of the Gaussian
mechanism and of one that fails with probability threshold_delta and reveals nothing otherwise, composed:
`Gaussian(noise_multiplier) + ApproximateDP(0, threshold_delta)`.

The count is the first release of the run that trains (`PrivateVocabulary.initial_release`), or a run of its own, for
several trainings (`PrivateVocabulary.run`).

References:
    Korolova, Kenthapadi, Mishra, Ntoulas: Releasing Search Queries and Clicks Privately. WWW 2009.
    Wilson, Zhang, Lam, Desfontaines, Simmons-Marengo, Gipson: Differentially Private SQL with Bounded User
    Contribution. PoPETs 2020, section 3.5.

>>> rule = PrivateVocabulary(noise_multiplier=2.0, words_per_user=16, threshold_delta=1e-6)
>>> round(rule.threshold, 4)  # 1/4 + 2 z, where 16 normal numbers are all below z but for a chance of 1e-6
10.8221

Which words a user votes for: a few of the distinct ones, by the user's own name and words alone.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato._types import Adjacency, Assumption, Unit
from sfumato.accounting import ApproximateDP, Event, Gaussian
from sfumato.accounting import calibrate as calibrate_event
from sfumato.data import Encoding, UncountedTexts, UserDataset
from sfumato.data.readers.text_users import records
from sfumato.data.text import tokens_of
from sfumato.runs import Run
from sfumato.runs.folder import as_started
from sfumato.statement import Facts, Statement
from sfumato.statement.verdict import default_delta

# Which words a user votes for: a few of the distinct ones, by the user's own name and words alone.


def words_by_user(texts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The distinct words of each user, from records of a user and a text; memory grows with them."""
    found: dict[str, set[str]] = {}
    for user, text in texts:
        held = tokens_of(text)
        if held:
            found.setdefault(user, set()).update(held)
    return found


def votes_of(user: str, held: set[str], most: int, source: RandomSource) -> list[str]:
    """At most so many of a user's words; no one else changes which."""
    words = sorted(filter(_is_text, held))
    if len(words) <= most:
        return words
    return [words[place] for place in source.stream("votes", user).permutation(len(words))[:most].tolist()]


def digest(words: Mapping[str, set[str]]) -> str:
    """Of everybody's words, in whatever order they were read."""
    found = hashlib.sha256()
    for user in sorted(words):
        found.update(repr((user, sorted(words[user]))).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _is_text(word: str) -> bool:
    """Whether a file of words can hold it: half of a pair of surrogates, as JSON may have it, is no text."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


FILE = "vocabulary.txt"
"""Where a run puts the words, one a line, as `--vocabulary` reads them."""


PHASE = "vocabulary"
_SHARE = 0.1  # of delta, for the chance that the threshold fails


@dataclass(frozen=True, kw_only=True)
class PrivateVocabulary:
    """How words are chosen; with texts (`initial_release`), the first release of the run that trains on them
    (`InitialRelease`).

    - **Unit.** One user with all texts.
    - **Sensitivity.** A user moves the votes by at most 1 in L2 norm, by coming or going and by being blanked.
    - **Who votes.** All users of the data to train on, whether a round will draw them or not. Those who are kept for
      validation and test do not: their words become <oov> unless others hold them.
    - **What is released.** The words above the threshold in the order of their noisy votes, without these; the size of
      the model is their number and four. The rounds see each user's texts by these words: a user's contribution follows
      from the own texts and from what was released, so the costs of the count and of the rounds add up.
    - **A run that goes on** reads the words from its checkpoint, at no cost. If it died before they were kept, it draws
      them again with the same noise from the same texts, which the fingerprint of the run makes sure of.

    Attributes:
        noise_multiplier: std of the noise on a vote, > 0; votes of one user have L2 norm at most 1. None until it is
            set or calibrated.
        words_per_user: m, distinct words that a user votes for at most, >= 1.
        threshold_delta: chance that any word which only one user holds is released, in (0, 1); None for a tenth of the
            statement's delta.
        size: words that are released at most, those with the highest noisy votes; None for all above the threshold.
        delta: of the statement, above threshold_delta; None for that of the plan that trains, or for what a run of as
            many users has by itself.
        seed: of a run of its own: repeatable randomness, for tests and simulation only; None draws from the operating
            system.
        texts: of the users who vote, then others that are measured on; set by `initial_release`.
    """

    noise_multiplier: float | None = None
    words_per_user: int = 64
    threshold_delta: float | None = None
    size: int | None = None
    delta: float | None = None
    seed: int | None = None
    texts: tuple[UncountedTexts, ...] = ()

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            _check.positive(noise_multiplier=self.noise_multiplier)
        _check.whole(words_per_user=self.words_per_user)
        if self.threshold_delta is not None:
            _check.between(0, 1, ends="()", threshold_delta=self.threshold_delta)
        if self.size is not None:
            _check.whole(size=self.size)
        if self.delta is not None:
            _check.between(self.threshold_delta or 0, 1, ends="()", delta=self.delta)

    def resolved(self, delta: float) -> Self:
        """The same rule for a statement with this delta.

        Raises:
            InputError: it was made for another one, or leaves nothing of it.
        """
        if self.delta not in (None, delta):
            raise InputError(
                f"the vocabulary is for delta {self.delta:g}, and the statement has {delta:g}; leave the first one out"
            )
        failure = _SHARE * delta if self.threshold_delta is None else self.threshold_delta
        if delta <= failure:
            raise InputError(
                f"threshold_delta must be below the statement's delta, {delta:g}, got {failure:g}; lower it, or leave "
                "it out for a tenth"
            )
        return replace(self, delta=delta, threshold_delta=failure)

    def calibrate(self, *, epsilon: float, delta: float, adjacency: Adjacency = "add_remove") -> Self:
        """A rule like this one whose noise makes the count alone cost (ε, δ).

        Args:
            epsilon: of the count, a tenth of the whole budget for example, > 0.
            delta: of the statement, in (0, 1).
            adjacency: of the run.

        Raises:
            InputError: no noise is enough.
        """
        _check.positive(epsilon=epsilon)
        rule = self.resolved(delta)

        def event(noise_multiplier: float) -> Event:
            return replace(rule, noise_multiplier=noise_multiplier).event(adjacency)

        noise = calibrate_event(event, epsilon=epsilon, delta=delta, adjacency=adjacency)
        return replace(rule, noise_multiplier=noise)

    @property
    def threshold(self) -> float:
        """What the noisy votes for a word must be above."""
        each = self._failure / self.words_per_user  # of at most so many words: the chances add up
        return self.weight + self._noise * float(norm.isf(each)) * (1 + 1e-12)

    @property
    def weight(self) -> float:
        """Of one vote."""
        return self.words_per_user**-0.5

    @property
    def words(self) -> str:
        """How the statement words it."""
        most = "" if self.size is None else f", the {self.size:,} with most votes"
        return (
            f"votes for at most {self.words_per_user} words of each user, noise multiplier {self._noise:.6g}, released "
            f"above {self.threshold:.4g}{most}"
        )

    def event(self, adjacency: Adjacency) -> Event:
        """What the release costs one user, who is absent or blanked (`zero_out`) in the neighbouring data."""
        if adjacency == "replace":
            raise InputError(
                "a vocabulary is accounted for add_remove and zero_out, not for replace; choose another sampling"
            )
        return Gaussian(self._noise) + ApproximateDP(0.0, self._failure, adjacency)

    def release(self, run: Run, data: UserDataset, adjacency: Adjacency) -> list[str]:
        """Release the words of the users of these data, those with the highest noisy votes first."""
        chosen = self._released(run, lambda: self._of(data).words_of(data.user_ids), adjacency)
        self._refuse_none(chosen)
        return chosen

    def _released(self, run: Run, words: Callable[[], Mapping[str, set[str]]], adjacency: Adjacency) -> list[str]:
        """Release the vocabulary as a phase of a run; its folder gets the words.

        Args:
            run: an open run that has started; its ledger gets the cost.
            words: gathers the distinct words of each user, by name; not asked where a resumed run has released them.
            adjacency: the run's.
        """

        def draw(source: RandomSource) -> dict[str, Tensor]:
            text = "\n".join(self._chosen(words(), source)).encode()
            return {"words": torch.frombuffer(bytearray(text + b"\n"), dtype=torch.uint8)}

        found = run.release(PHASE, self.event(adjacency), draw, threshold=self.threshold)
        chosen = found["words"].numpy().tobytes().decode().split()
        if run.folder is not None and run.team.leads:
            write_atomic(run.folder.path / FILE, "".join(f"{word}\n" for word in chosen).encode())
        return chosen

    @property
    def users_needed(self) -> float:
        """A word has to be voted for by more users than this, but for the noise."""
        return self.threshold / self.weight

    def warning(self, population: int) -> str:
        """Why hardly any word will be released among so many users; "" where nothing speaks against it."""
        if self.users_needed < population:
            return ""
        return (
            f"hardly any word can be released: without noise, a word needs more than {self.users_needed:,.0f} votes, "
            f"and there are {population:,} users; give the vocabulary less noise or fewer words_per_user"
        )

    def _refuse_none(self, chosen: list[str]) -> None:
        """Refuse a vocabulary without words, once it is released."""
        if not chosen:
            raise InputError(
                f"no word passed the threshold (above {self.users_needed:,.0f} users without noise); start a new "
                "run with less vocabulary noise or fewer words_per_user (this cost counts)"
            )

    def initial_release(self, *texts: UncountedTexts) -> Self:
        """The vocabulary as the first release of the run that trains on it; for `RunOptions(initial_release=…)`.

        Args:
            texts: those of the users who train; after them any others that validation or test are views of, whose
                words do not count. None to compute what it costs.

        Raises:
            InputError: they are no texts that can be counted, or the rule has a seed of its own.
        """
        if self.seed is not None:
            raise InputError("the vocabulary is drawn by the seed of the plan; leave its own out")
        for each in texts:
            if not isinstance(each, UncountedTexts):
                raise InputError(f"texts are read by data.uncounted_texts, got {type(each).__name__}")
        return replace(self, texts=texts)

    def run(
        self, path: Path | str, *, out: Path | str | None = None, user: str | None = None, input: str | None = None
    ) -> tuple[list[str], Statement]:
        """Release the vocabulary of a file in a run of its own, to train several models with it.

        The statement is for the vocabulary alone: what is trained with it on the same texts has one of its own, and
        both costs add up (`sfumato ledger merge`).

        Args:
            path: as for `sfumato.data.open_users`.
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
        rule = self.resolved(delta)
        facts = Facts(
            unit="user",
            adjacency="add_remove",
            population=len(words),
            delta=delta,
            sampling="everyone",
            mechanism=rule.words,
            attained=False,
            assumptions=(Assumption("division_public"),),
        )
        with Run.open(
            out, plan={"plan": PHASE, **rule._settings(), "delta": delta, "seed": self.seed}, seed=self.seed
        ) as run:
            run.start(digest(words))
            chosen = rule._released(run, lambda: words, "add_remove")
            statement = run.finish({}, facts)
        rule._refuse_none(chosen)
        return chosen, statement

    @property
    def _noise(self) -> float:
        if self.noise_multiplier is None:
            raise InputError(
                "the vocabulary's noise_multiplier is not set; give one, or call calibrate(epsilon=…, delta=…)"
            )
        return self.noise_multiplier

    @property
    def _failure(self) -> float:
        if self.threshold_delta is not None:
            return self.threshold_delta
        if self.delta is None:
            raise InputError(
                "threshold_delta is a tenth of the statement's delta, which the rule does not know; give delta, too"
            )
        return _SHARE * self.delta

    def _chosen(self, words: Mapping[str, set[str]], source: RandomSource) -> list[str]:
        votes: dict[str, int] = {}
        for user, held in words.items():
            for word in votes_of(user, held, self.words_per_user, source):
                votes[word] = votes.get(word, 0) + 1
        known = sorted(votes)
        noisy = self.weight * np.array([votes[word] for word in known], np.float64)
        source.stream("vote noise").add_normal(noisy, std=self._noise)
        best = np.argsort(-noisy, kind="stable")
        best = best[noisy[best] > self.threshold][: self.size]
        return [known[place] for place in best.tolist()]

    # As the first release of a run (`training.InitialRelease`), with `words`, `resolved`, `warning`, `event` and
    # `release`.

    @property
    def unit(self) -> Unit:
        return "user"

    @property
    def phase(self) -> str:
        return PHASE

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (Assumption("vocabulary_counted"),)

    @property
    def placeholder(self) -> list[str]:
        return [f"<word {number}>" for number in (1, 2, 3)]  # in texts, these are four tokens

    def as_started(self, recorded: Mapping[str, Any]) -> Self:
        return as_started(self, recorded, "noise_multiplier")

    def fingerprint(self) -> str:
        return f"{self._settings()} {[each.fingerprint() for each in self.texts]}"

    def about(self, found: list[str] | None = None) -> dict[str, Any]:
        if found is None:
            return {"opening": {"phase": PHASE, **self._settings()}}
        return {"vocabulary_size": Encoding.words(found).size}

    def prepare(self, found: list[str], data: UserDataset) -> UserDataset:
        return self._of(data).encoded(found, data)

    def public(self, data: UserDataset) -> UserDataset:
        return data.without_users()

    def _of(self, data: UserDataset) -> UncountedTexts:
        texts = next((each for each in self.texts if each.holds(data)), None)
        if texts is None:
            raise InputError(
                "data, validation and test must be views of texts.blank of the initial release; split it with "
                "data.split_users, or give these texts to initial_release(…)"
            )
        return texts

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("noise_multiplier", "words_per_user", "threshold_delta", "size")}
