"""Differentially private local clustering (DPLC): groups of class centres whose mean directions may be shared.

A client holds one centre for each identity, the normalised mean of a shared network's embeddings of that identity's own
pictures (`class_centres`). It releases the mean direction of a few dense caps of the sphere. Other clients use these as
negatives, and learn of no identity by itself.

- **Unit.** One identity with all its pictures, which comes or goes. A centre depends on its own identity alone: rows of
  a trained classifier do not, as each follows from all identities through the softmax.
- **Mechanism.** Candidates are public directions. The exponential mechanism chooses one by how many centres lie within
  `radius` of it; these are the cap. The sum of the cap's centres and their number are released with Gaussian noise.
- **Sensitivity.** One identity moves each candidate's count by at most one, all in the same direction, so that weights
  exp(ε₀ · count) cost ε₀. Which cap is summed follows from public values, so that one identity moves the sum by at
  most its own length, one, and the number by one: `joint(Gaussian(z), Gaussian(5 z))`.
- **Round-off.** Centres and directions are cut off to multiples of 2⁻²², of which products and sums are exact in double
  precision. So whether a centre lies in a cap does not depend on the order, or on which others are there. The choice is
  made in whole numbers (`drawn`): a probability is that of the exponential mechanism up to a factor 1 ± 2⁻⁴⁰, however
  small it is; below 2⁻¹⁰²² it may be zero.
- **Free.** The test against `threshold`, the normalisation, the expected quality, and which centres later releases
  leave out, all follow from what was released. Those that are left out are near the *released* direction: for each of
  them it follows from itself and from public values.
- **Public.** How many identities the client holds: δ, and with it the noise, may follow from it. That a projection maps
  a centre to zero is not: such a centre is in no cap, and nothing is refused.
- **First and last.** A client of no identity in any cap releases noise. A cap below the threshold costs as much, and
  its direction is not used.
- **Released.** The candidates chosen, the noisy sums and numbers, and what follows from them.
- **Two silos.** A person whom `silos` clients hold is covered at that many times each event.

`as_printed` runs the paper's Algorithm 1, for comparison: nothing is proven for it, and two sets of identities that
differ in one are distinguished with certainty (`tests/federated/test_clustering.py`), so its statement has no epsilon.

>>> centres = np.random.default_rng(0).normal(size=(2000, 16)) + np.eye(16)[0]
>>> candidates = np.eye(16)
>>> plan = DPLC(epsilon=2.0, delta=1e-5, radius=1.3, threshold=100, seed=1)
>>> result = plan.release(centres, candidates)
>>> [(cluster.candidate, cluster.usable, round(cluster.count, -2)) for cluster in result.clusters]
[(0, True, 900.0)]
>>> result.statement.unit, result.statement.epsilon <= 2.0
('identity', True)

References:
    Meng, Zhou, Li, Wang, Cheng: Improving Federated Learning Face Recognition via Privacy-Agnostic Clusters. ICLR 2022
    (PrivacyFace; there Algorithm 1, which `as_printed` runs).
    McSherry, Talwar: Mechanism Design via Differential Privacy. FOCS 2007 (the exponential mechanism).
    Dong, Durfee, Rogers: Optimal Differential Privacy Composition for Exponential Mechanisms. ICML 2020.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato import _check
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._lazy import scipy, torch
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.statement.facts import Facts, make_statement
from sfumato.statement.sentences import render
from sfumato.statement.verdict import default_delta

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato._random import Stream
    from sfumato.accounting import Event
    from sfumato.data import UserDataset
    from sfumato.ledger import Budget
    from sfumato.runs import Run
    from sfumato.statement import Statement

Progress = Callable[[int, int], None]

_BLOCK = 4096  # centres that are compared with all candidates at a time
_COUNT_NOISE = 5.0  # noise on the number, in that on the sum
_GRID = 2.0**-22
_PRINTED = "PrivacyFace's Algorithm 1 as printed"
_CHOSEN_SUMS = "exponential mechanism on public directions, then a Gaussian sum of class centres"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The direction of a cap, as it was released.

    Attributes:
        candidate: the public direction that the cap lies around.
        direction: of length 1, float32 [dimensions of the centres].
        count: noisy number of centres in the cap.
        usable: whether the number reaches the threshold.
        cosine: expected cosine of the direction with that of the cap without noise, by what was released, in [0, 1];
            after a projection, in its dimensions: what it leaves out of the centres is not known.
    """

    candidate: int
    direction: np.ndarray
    count: float
    usable: bool
    cosine: float


@dataclass(frozen=True, kw_only=True)
class Clustering:
    """What a client released.

    Attributes:
        clusters: in the order of their release.
        dimensions: of centres and directions.
        statement: what they cost each identity.
        folder: of the run, or None.
    """

    clusters: tuple[Cluster, ...]
    dimensions: int
    statement: Statement
    folder: Path | None

    @property
    def directions(self) -> np.ndarray:
        """Those that may be used, float32 [clusters, dimensions]; none where no cap reached the threshold."""
        usable = [cluster.direction for cluster in self.clusters if cluster.usable]
        return np.array(usable, np.float32).reshape(len(usable), self.dimensions)


@dataclass(frozen=True, kw_only=True)
class DPLC:
    """The plan.

    Attributes:
        epsilon: of one identity, all releases together, > 0.
        delta: in (0, 1); None for 0.01 / identities.
        radius: of a cap, an angle in (0, π). Where no cap of it holds enough of the centres, take a larger one, or a
            projection to fewer dimensions: see `cap_share`.
        threshold: noisy number of centres from which on a direction is used, >= 1.
        releases: caps, >= 1; the budget is shared by all.
        selection_share: of epsilon, what the choice of candidates costs, in (0, 1).
        silos: clients that may hold the same person, >= 1.
        as_printed: the paper's Algorithm 1, for which nothing is proven; candidates are not used.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    epsilon: float
    delta: float | None = None
    radius: float = 1.4
    threshold: int = 100
    releases: int = 1
    selection_share: float = 0.1
    silos: int = 1
    as_printed: bool = False
    seed: int | None = None

    name: ClassVar[str] = "dplc"

    def __post_init__(self) -> None:
        _check.positive(epsilon=self.epsilon)
        if self.delta is not None:
            _check.between(0, 1, ends="()", delta=self.delta)
        _check.between(0, math.pi, ends="()", radius=self.radius)
        _check.between(0, 1, ends="()", selection_share=self.selection_share)
        _check.whole(threshold=self.threshold, releases=self.releases, silos=self.silos)
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)

    def delta_for(self, identities: int) -> float:
        """The chosen δ, or 0.01 / identities."""
        return default_delta(identities) if self.delta is None else self.delta

    def noise_multiplier(self, identities: int) -> float:
        """Std of the noise on each coordinate of a sum of unit vectors, for so many identities."""
        return self._noise(self.delta_for(identities))

    def _noise(self, delta: float) -> float:
        return _calibrated(self._selection_epsilon, self._times, self.epsilon, delta)

    @property
    def _times(self) -> int:
        return self.releases * self.silos

    def _selection(self) -> Event:
        return acc.ExponentialMechanism(self._selection_epsilon)

    @property
    def _selection_epsilon(self) -> float:
        """ε₀ of one choice."""
        return self.selection_share * self.epsilon / self._times

    def _sums(self, noise: float) -> Event:
        return _sums(noise)

    def event(self, identities: int) -> Event:
        """What all releases cost one identity."""
        if self.as_printed:
            return acc.NonPrivate()
        return self._selection() * self._times + self._sums(self.noise_multiplier(identities)) * self._times

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **{each.name: getattr(self, each.name) for each in fields(DPLC)}}

    def statement(self, identities: int) -> Statement:
        """What a run would state."""
        source = "os" if self.seed is None else "seeded"
        return make_statement(self.event(identities), self._facts(identities), noise_source=source)

    def release(
        self,
        centres: np.ndarray,
        candidates: np.ndarray,
        *,
        projection: np.ndarray | None = None,
        budget: Budget | None = None,
        out: Path | str | None = None,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> Clustering:
        """Release directions of dense caps.

        Args:
            centres: one for each identity, float [identities, d]; they are normalised.
            candidates: public directions, float [candidates, d]; they are normalised.
            projection: a public matrix with orthonormal columns, float [d, k], which centres and candidates are
                multiplied by before anything is compared; the noise then has k dimensions, and directions are brought
                back to d. None compares in d dimensions.
            budget: what all releases of the folder together may cost.
            out: folder of the run; None keeps everything in memory.
            resume: go on with the run in `out`.
            progress: called with (done, total) blocks of centres.

        Raises:
            InputError: a row is zero or not finite, sizes differ, there are fewer identities than the threshold, or a
                candidate is the centre of a private identity.
        """
        from sfumato.runs import Run

        rows, public, back = _prepared(centres, candidates, projection)
        identities = len(rows)
        self._refuse_few(identities)
        with Run.open(out, plan=self.to_json(), seed=self.seed, resume=resume, budget=budget) as run:
            fingerprint = _fingerprint(self.to_json(), rows, public, back)
            saved = run.begin(fingerprint, "add_remove", resume=resume, what="clusters", costs=[self.event(identities)])
            found = self._printed(run, rows) if self.as_printed else self._released(run, rows, public, progress)
            clusters = tuple(_brought_back(cluster, back) for cluster in found)
            size = np.asarray(centres).shape[1]
            tensors = {}
            for name, usable in (("directions", True), ("unused", False)):
                found = [each.direction for each in clusters if each.usable is usable]
                tensors[name] = torch.from_numpy(np.array(found, np.float32).reshape(-1, size))
            shown = [
                {"candidate": each.candidate, "count": each.count, "usable": each.usable, "cosine": each.cosine}
                for each in clusters
            ]
            if saved is None or not saved.complete:  # a complete one has its row
                run.note({"round": 1, "clusters": shown})
            statement = run.finish(tensors, self._facts(identities), metadata={"clusters": shown})
            folder = None if run.folder is None else run.folder.path
            return Clustering(clusters=clusters, dimensions=size, statement=statement, folder=folder)

    def _released(self, run: Run, rows: np.ndarray, directions: np.ndarray, progress: Progress | None) -> list[Cluster]:
        """Choose, sum, and leave out what is near the released direction, so many times."""
        noise, clusters = self.noise_multiplier(len(rows)), []
        limit = math.cos(self.radius)
        left = _directed(rows)
        for number in range(1, self.releases + 1):
            chosen = int(
                run.release(
                    f"candidate {number}",
                    self._selection() * self.silos,
                    partial(self._choose, rows, left, directions, progress),
                )["candidate"]
            )
            sums = run.release(
                f"cap {number}",
                self._sums(noise) * self.silos,
                partial(_noisy_sum, rows, left & _inside(rows, directions[chosen], limit), noise),
                noise_std=noise,
                count_noise_std=_COUNT_NOISE * noise,
            )
            cluster = self._cluster(chosen, sums["sum"].numpy(), float(sums["count"]), noise)
            clusters.append(cluster)
            if cluster.usable:
                left &= ~_inside(rows, cluster.direction, limit)
        return clusters

    def release_in_silos(
        self,
        run: Run,
        silos: Sequence[np.ndarray],
        candidates: np.ndarray,
        *,
        releases: int,
        name: str,
        projection: np.ndarray | None = None,
    ) -> list[tuple[Cluster, ...]]:
        """Release directions of several clients that share no identity, in a run that has begun.

        An identity is in one client's data, so each release costs once for all clients: its noise is independent in
        each, and of one size. Where a person may be in several, `silos` counts them.

        Args:
            run: where the releases stand, and whose randomness is drawn from.
            silos: the centres of each client, float [identities, d].
            candidates, projection: as for `release`; for all clients.
            releases: of this call; those of all calls for a run are at most `self.releases`.
            name: of this call in the run; another call has another.

        Returns:
            of each client, in the order of their release; the run states what they cost.

        Raises:
            InputError: as for `release`.
        """
        if not silos:
            raise InputError("clusters need the centres of one silo at least, got none")
        words = [f"{name} candidate {number}" for number in range(1, releases + 1)]
        spent = dict(acc.terms(run.spent())).get(self._selection(), 0) // self.silos
        planned = spent + sum(not run.has_released(word) for word in words)
        if planned > self.releases:
            raise InputError(f"the plan has noise for {self.releases} releases, got {planned}; raise its releases")
        prepared = [_prepared(centres, candidates, projection) for centres in silos]
        for rows, _, _ in prepared:
            self._refuse_few(len(rows))
        if self.delta is None or self.as_printed:
            raise InputError("clusters of several silos need a delta of their own, and not as_printed; set delta")
        directions, back, noise = prepared[0][1], prepared[0][2], self._noise(self.delta)
        every, limit = [rows for rows, _, _ in prepared], math.cos(self.radius)
        left = [_directed(rows) for rows in every]
        clusters: list[list[Cluster]] = [[] for _ in every]

        def chosen_in_each(source: RandomSource) -> dict[str, Tensor]:
            found = [
                self._choose(rows, there, directions, None, source.within(f"silo {silo}"))["candidate"]
                for silo, (rows, there) in enumerate(zip(every, left, strict=True))
            ]
            return {"candidates": torch.stack(found)}

        def sums_of_each(source: RandomSource) -> dict[str, Tensor]:
            found = [
                _noisy_sum(rows, there & _inside(rows, directions[each], limit), noise, source.within(f"silo {silo}"))
                for silo, (rows, there, each) in enumerate(zip(every, left, chosen, strict=True))
            ]
            return {part: torch.stack([each[part] for each in found]) for part in ("sum", "count")}

        for number, word in enumerate(words, start=1):
            about: dict[str, Any] = {"silos": len(every)}
            found = run.release(word, self._selection() * self.silos, chosen_in_each, **about)
            chosen = found["candidates"].tolist()
            about |= {"noise_std": noise, "count_noise_std": _COUNT_NOISE * noise}
            sums = run.release(f"{name} cap {number}", self._sums(noise) * self.silos, sums_of_each, **about)
            for silo, rows in enumerate(every):
                total, count = sums["sum"][silo].numpy(), float(sums["count"][silo])
                cluster = self._cluster(chosen[silo], total, count, noise)
                clusters[silo].append(cluster)
                if cluster.usable:
                    left[silo] &= ~_inside(rows, cluster.direction, limit)
        return [tuple(_brought_back(cluster, back) for cluster in each) for each in clusters]

    def _refuse_few(self, identities: int) -> None:
        if identities < self.threshold:
            raise InputError(
                f"a threshold of {self.threshold:,} needs as many identities, got {identities:,}; lower it, or take "
                "more identities"
            )

    def _choose(
        self,
        rows: np.ndarray,
        left: np.ndarray,
        directions: np.ndarray,
        progress: Progress | None,
        source: RandomSource,
    ) -> dict[str, Tensor]:
        """The exponential mechanism on the counts of caps."""
        counts = _cap_counts(rows, left, directions, math.cos(self.radius), progress)
        weights = np.exp(self._selection_epsilon * (counts - counts.max()))
        return {"candidate": torch.tensor(drawn(weights, source.stream("candidate")))}

    def _cluster(self, candidate: int, total: np.ndarray, count: float, noise: float) -> Cluster:
        """What follows from a release: no record is looked at."""
        length = float(np.linalg.norm(total))
        signal = max(length**2 - len(total) * noise**2, 0.0)  # its mean is the squared length of the sum without noise
        return Cluster(
            candidate=candidate,
            direction=_cut(total / max(length, 1e-300)),
            count=count,
            usable=count >= self.threshold,
            cosine=math.sqrt(signal) / length if length else 0.0,
        )

    def _printed(self, run: Run, rows: np.ndarray) -> list[Cluster]:
        """Algorithm 1 of the paper as it is printed; its noise has no proof."""
        limit, clusters = math.cos(self.radius), []
        spread = math.sqrt((1 - math.cos(2 * self.radius)) * math.log(1.25 / self.delta_for(len(rows))))
        rows = rows[_directed(rows)]
        for number in range(1, self.releases + 1):
            counts = _cap_counts(rows, np.ones(len(rows), bool), rows, limit, None)
            inside = rows[_inside(rows, rows[counts.argmax()], limit)] if len(rows) else rows
            enough = len(inside) >= self.threshold
            mean = inside.sum(axis=0, dtype=np.float64) / max(len(inside), 1)
            noise = 2 / (max(len(inside), 1) * self.epsilon) * spread
            draw = partial(_noisy_sum, mean[None], np.ones(1, bool), noise) if enough else _nothing
            found = run.release(f"printed cap {number}", acc.NonPrivate(), draw)  # that there is none is one, too
            if not enough:
                break
            direction = _unit(found["sum"].numpy()[None], "a direction")[0]
            clusters.append(Cluster(candidate=-1, direction=direction, count=len(inside), usable=True, cosine=1.0))
            rows = rows[~_inside(rows, _unit(mean[None], "a mean")[0], limit)]
            if len(rows) < self.threshold:
                break
        return clusters

    def _facts(self, identities: int) -> Facts:
        held = Assumption("one_silo") if self.silos == 1 else Assumption("several_silos", {"silos": self.silos})
        return Facts(
            unit="identity",
            adjacency="add_remove",
            population=identities,
            delta=self.delta_for(identities),
            sampling="all identities of the client in every release",
            mechanism=_PRINTED if self.as_printed else f"{_CHOSEN_SUMS}; such releases: {self.releases}",
            attained=False,
            covered=Assumption("covers_clusters"),
            assumptions=(Assumption("own_centres"), Assumption("public_candidates"), held),
            no_guarantee=Assumption("as_printed"),
            disclosure={"released": render(Assumption("released_directions"))},
        )


def _sums(noise: float) -> Event:
    return acc.joint(acc.Gaussian(noise), acc.Gaussian(_COUNT_NOISE * noise))


def drawn(weights: np.ndarray, stream: Stream) -> int:
    """A place, drawn with probability proportional to its weight.

    Weights become whole numbers, each exactly itself times one power of two, and the place follows from a uniform whole
    number below their sum. So the least weight keeps its probability; in floating point, sums would swallow it.

    Args:
        weights: float64 [n], >= 0 and finite, one at least > 0.
        stream: of the choice.

    >>> drawn(np.array([0.0, 2.0**-1000, 0.0]), RandomSource.from_seed(0).stream("candidate"))
    1
    """
    mantissas, exponents = np.frexp(weights)
    digits = np.ldexp(mantissas, 53).astype(np.int64).tolist()
    ends = list(accumulate(digit << (place + 1073) for digit, place in zip(digits, exponents.tolist(), strict=True)))
    words = ends[-1].bit_length() // 64 + 2  # 64 bits more than the sum has
    uniform = int.from_bytes(stream.uint64(words).astype(">u8").tobytes(), "big")
    return bisect_right(ends, uniform * ends[-1] >> 64 * words)


@lru_cache(maxsize=64)  # a release asks for it more than once, and simulations release often
def _calibrated(selection_epsilon: float, times: int, epsilon: float, delta: float) -> float:
    """The noise on sums with which so many choices and sums together cost (ε, δ)."""
    choices = acc.ExponentialMechanism(selection_epsilon) * times
    return acc.calibrate(lambda noise: choices + _sums(noise) * times, epsilon=epsilon, delta=delta)


def class_centres(model: nn.Module, data: UserDataset, *, device: str = "cpu") -> tuple[np.ndarray, np.ndarray]:
    """The normalised mean of each identity's embeddings of length 1; it depends on this identity's records alone.

    What the model keeps of an identity is put back before the next one, and all meet the same random numbers.

    Args:
        model: maps inputs to embeddings; trained without these identities, or under a guarantee of its own.
        data: users are identities.
        device: where to compute.

    Returns:
        centres, float32 [identities with records, d]; their positions in the data, int64.

    Raises:
        InputError: no identity has records, or the mean of one is zero or not finite.
    """
    from sfumato.federated.tasks import embed
    from sfumato.guard.trial import seed_dropout

    places, centres, where = np.flatnonzero(data.sizes), [], torch.device(device)
    if not len(places):
        raise InputError("no identity has a picture to make a centre of; give data with records")
    put_back = _state_of(model)
    with torch.random.fork_rng([where] if where.type == "cuda" else [], device_type="cuda"):
        for place in places:  # alone: in a batch with others, round-off would depend on them
            seed_dropout(0, where)
            vectors = [part for _, _, part in embed(model, data.subset([int(place)]), device=device)]
            centres.append(np.concatenate(vectors).sum(axis=0, dtype=np.float64))
            put_back()
    return _unit(np.stack(centres), "centres").astype(np.float32), places


def _state_of(model: nn.Module) -> Callable[[], None]:
    """What puts all that a model keeps back to what it is now: attributes, buffers and parameters."""
    from sfumato.guard.trial import Attributes, same_values

    attributes = Attributes(model)
    held = [(each, dict(each)) for part in model.modules() for each in (part._parameters, part._buffers)]
    values = [(each, each.detach().clone()) for _, then in held for each in then.values() if each is not None]

    def put_back() -> None:
        attributes.put_back()
        for now, then in held:
            now.clear()
            now.update(then)  # pyright: ignore[reportCallIssue, reportArgumentType]
        with torch.no_grad():
            for tensor, value in values:
                if not same_values(tensor.detach(), value):
                    tensor.copy_(value)

    return put_back


def centres_of(vectors: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """The normalised mean of each owner's embeddings of length 1, as `class_centres` takes it of pictures.

    Args:
        vectors: float [n, d].
        owners: number of whose each row is, int64 [n]; every number from 0 to the largest occurs.

    Returns:
        float32 [owners, d].
    """
    rows, order = _unit(vectors, "embeddings"), np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    return _unit(np.add.reduceat(rows[order].astype(np.float64), starts, axis=0), "centres")


def public_directions(public: np.ndarray, count: int, *, seed: int = 0) -> np.ndarray:
    """Candidates: the directions of so many groups of public embeddings, by k-means.

    Args:
        public: float [n, d], of people who are not covered.
        count: groups, in [1, n].
        seed: of the search; it is public.

    Returns:
        float32 [count, d].
    """
    from sklearn.cluster import KMeans

    rows = _unit(public, "public embeddings")
    _check.whole(count=count)
    if count > len(rows):
        raise InputError(f"{count} groups need as many public embeddings, got {len(rows)}; give more, or fewer groups")
    return _unit(KMeans(count, random_state=seed).fit(rows).cluster_centers_, "groups")


def principal_directions(public: np.ndarray, dimensions: int) -> np.ndarray:
    """A projection: the directions in which public embeddings are largest, float64 [d, dimensions], orthonormal."""
    rows = _unit(public, "public embeddings").astype(np.float64)
    _check.whole(dimensions=dimensions)
    if dimensions > min(rows.shape):
        raise InputError(
            f"dimensions is {dimensions}, and there are {len(rows)} public embeddings of {rows.shape[1]} dimensions; "
            f"lower it to {min(rows.shape)}"
        )
    return np.linalg.svd(rows, full_matrices=False)[2][:dimensions].T


def cap_share(dimensions: int, radius: float) -> float:
    """The share of the sphere that lies within an angle of a direction: ½ I_{sin² ρ}((d − 1) / 2, ½) up to π / 2.

    Args:
        dimensions: of the space, >= 2.
        radius: ρ in [0, π].

    >>> [float(f"{cap_share(512, radius):.0e}") for radius in (1.5, 1.4, 1.3)]
    [0.05, 5e-05, 4e-10]
    """
    _check.whole(at_least=2, dimensions=dimensions)
    _check.between(0, math.pi, radius=radius)
    half = 0.5 * float(scipy.special.betainc((dimensions - 1) / 2, 0.5, math.sin(radius) ** 2))
    return half if radius <= math.pi / 2 else 1 - half


def expected_cosine(size: float, resultant: float, dimensions: int, noise: float) -> float:
    """The cosine to expect between the mean direction of a cap and the released one.

    Args:
        size: centres in the cap.
        resultant: length of their mean, at least the cosine of the cap's radius, in (0, 1].
        dimensions: of the noise.
        noise: its std on each coordinate of the sum.
    """
    signal = size * resultant
    return signal / math.sqrt(signal**2 + dimensions * noise**2) if signal else 0.0


def size_for(cosine: float, resultant: float, dimensions: int, noise: float) -> float:
    """How many centres a cap needs for an expected cosine in (0, 1): 2.06 z √d / resultant for 0.9.

    >>> round(size_for(0.9, 1.0, 1, 1.0), 3)
    2.065
    """
    return cosine / math.sqrt(1 - cosine**2) * noise * math.sqrt(dimensions) / resultant


def refuse_private(centres: np.ndarray, public: np.ndarray) -> None:
    """Refuse public embeddings that candidates or a projection are made of, if one is a private identity's centre.

    Args:
        centres: float [identities, d].
        public: float [n, d].

    Raises:
        InputError: one is; or a row is zero or not finite.
    """
    _refuse_shared(_unit(centres, "centres"), _unit(public, "public embeddings"), "a public embedding")


def _refuse_shared(rows: np.ndarray, public: np.ndarray, what: str) -> None:
    known = {(row + 0.0).tobytes() for row in public}  # −0 is 0
    if any((row + 0.0).tobytes() in known for row in rows):
        raise InputError(f"{what} is the centre of a private identity; candidates must be public")


def refuse_other_sizes(centres: np.ndarray, candidates: np.ndarray) -> None:
    """Refuse candidates of other dimensions than the centres', both [n, dimensions]."""
    if centres.shape[1] != candidates.shape[1]:
        wide, other = centres.shape[1], candidates.shape[1]
        raise InputError(f"centres have {wide} dimensions and candidates {other}; embed both with one model")


def _prepared(
    centres: np.ndarray, candidates: np.ndarray, projection: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Unit rows of both, in the dimensions that are compared; and the matrix that leads back."""
    raw, public = np.asarray(centres), np.asarray(candidates)
    for name, rows in (("centres", raw), ("candidates", public)):
        if rows.ndim != 2 or rows.dtype.kind != "f" or not len(rows):
            raise InputError(f"{name} must be floats [{name}, dimensions], at least one, got {rows.dtype} {rows.shape}")
    refuse_other_sizes(raw, public)
    rows, directions = _unit(raw, "centres"), _unit(public, "candidates")
    _refuse_shared(rows, directions, "a candidate")
    if projection is None:
        return rows, directions, None
    back = np.asarray(projection, np.float64)
    if back.ndim != 2 or back.shape[0] != raw.shape[1]:
        raise InputError(f"projection must be floats [{raw.shape[1]}, k], got {back.shape}")
    if not np.allclose(back.T @ back, np.eye(back.shape[1]), atol=1e-5):
        raise InputError("the projection's columns must be orthonormal; take those of a public SVD")
    # That a centre becomes zero depends on private data, so that a refusal would report it.
    return _projected(rows, back, "centres", zeros=True), _projected(directions, back, "candidates"), back


def _projected(rows: np.ndarray, back: np.ndarray, name: str, *, zeros: bool = False) -> np.ndarray:
    """Rows times a matrix on the grid, whose products are exact, so that a row does not depend on the others."""
    return _unit(np.concatenate(list(_products(rows, _cut(back).T))), name, zeros=zeros)


def _unit(rows: np.ndarray, name: str, *, zeros: bool = False) -> np.ndarray:
    """Float32 rows of length at most 1, and nearly 1, on the grid; rows of zeros stay so with `zeros`."""
    found = np.empty(rows.shape, np.float32)
    for start in range(0, len(rows), _BLOCK):
        # In one order of memory, and by a power of two near 1: squares neither vanish nor overflow, and are added in an
        # order that no other row has a part in.
        values = rows[start : start + _BLOCK].astype(np.float64, order="C")
        values = np.ldexp(values, -np.frexp(np.abs(values).max(axis=1, keepdims=True, initial=0.0))[1])
        lengths = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
        if zeros:
            lengths[lengths == 0] = 1.0
        wrong = ~np.isfinite(lengths[:, 0]) | (lengths[:, 0] == 0)
        if wrong.any():
            raise InputError(f"{name}: row {start + int(wrong.argmax())} is zero or not finite; leave it out")
        found[start : start + _BLOCK] = _cut(values / (lengths * (1 + 1e-12)))  # towards zero: no row becomes longer
    return found


def _directed(rows: np.ndarray) -> np.ndarray:
    """Which rows have a direction, bool [rows]: a centre that is zero after the projection is in no cap."""
    return np.asarray(rows.any(axis=1))


def _products(rows: np.ndarray, directions: np.ndarray) -> Iterator[np.ndarray]:
    """Products of rows and directions on the grid, float64 [block, directions], exact."""
    turned = directions.astype(np.float64).T
    for start in range(0, len(rows), _BLOCK):
        yield rows[start : start + _BLOCK].astype(np.float64) @ turned


def _inside(rows: np.ndarray, direction: np.ndarray, limit: float) -> np.ndarray:
    """Which rows lie in the cap of a direction, bool [rows]."""
    return np.concatenate([products[:, 0] >= limit for products in _products(rows, direction[None])])


def _cut(values: np.ndarray) -> np.ndarray:
    """Numbers of at most 1 on the grid, float32."""
    return (np.trunc(values / _GRID) * _GRID).astype(np.float32)


def _noisy_sum(rows: np.ndarray, inside: np.ndarray, noise: float, source: RandomSource) -> dict[str, Tensor]:
    """The sum of the rows inside, with noise also where there are none, and their noisy number."""
    total, stream = np.zeros(rows.shape[1]), source.stream("cap noise")
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK][inside[start : start + _BLOCK]]
        total += block.sum(axis=0, dtype=np.float64)
    noisy = total + noise * stream.normal(len(total))
    count = np.count_nonzero(inside) + _COUNT_NOISE * noise * float(stream.normal(1)[0])
    return {"sum": torch.from_numpy(noisy), "count": torch.tensor(count, dtype=torch.float64)}


def _nothing(source: RandomSource) -> dict[str, Tensor]:
    """What is released where the printed algorithm finds no cap."""
    return {"sum": torch.zeros(0, dtype=torch.float64)}


def _cap_counts(
    rows: np.ndarray, left: np.ndarray, directions: np.ndarray, limit: float, progress: Progress | None
) -> np.ndarray:
    """How many of the rows that are left lie in the cap of each direction, int64 [directions], in bounded memory."""
    counts, blocks = np.zeros(len(directions), np.int64), -(-len(rows) // _BLOCK)
    for block, products in enumerate(_products(rows, directions)):
        counts += np.count_nonzero((products >= limit) & left[block * _BLOCK :][: len(products), None], axis=0)
        if progress is not None:
            progress(block + 1, blocks)
    return counts


def _brought_back(cluster: Cluster, back: np.ndarray | None) -> Cluster:
    if back is None:
        return cluster
    return replace(cluster, direction=(back @ cluster.direction.astype(np.float64)).astype(np.float32))


def _fingerprint(plan: dict[str, Any], *arrays: np.ndarray | None) -> str:
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode())
    for array in arrays:
        if array is not None:
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
