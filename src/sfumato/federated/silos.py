"""The rounds of `PrivacyFace`: what silos hold, what they show each other, and what the server makes of it.

A round, in this order: clusters are released, if the plan names the round; the round's cost is written to the ledger;
silos that are online train one after the other, each from the received backbone, with the clusters of the others as
negatives; the server takes a step on the unweighted mean. A round in which no silo is online takes no step.

A checkpoint follows every silo, so that a run that was stopped goes on with the next one: the backbone that the round
began with, the sum of updates so far, the directions and the server's state. It holds no record, head or centre (but
all centres with sharing=fedface, which shares them).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated.client import ClientData, Phase, gather, orders_of_examples, rows_of
from sfumato.federated.clustering import (
    centres_of,
    class_centres,
    principal_directions,
    public_directions,
    refuse_private,
)
from sfumato.federated.contribution import LocalContribution, probe
from sfumato.federated.sharing import ExactClusters, Expert, NoisyCentres, Pooled, PrivateClusters, SpreadOut
from sfumato.guard.trial import seed_dropout
from sfumato.models import refuse_batch_norm, refuse_no_values
from sfumato.runs import Run
from sfumato.sampling import Cohort
from sfumato.statement import Statement
from sfumato.training.contribution import (
    RoundContext,
    refuse_other,
    refuse_private_rows,
)
from sfumato.training.server import MovingAverage, Server
from sfumato.training.trainable import Trainable, copied

if TYPE_CHECKING:
    from sfumato.data import UserDataset
    from sfumato.federated.privacyface import PrivacyFace
    from sfumato.ledger import Budget
    from sfumato.training.contribution import ModelFingerprint, Task

_BLOCK = 1024  # centres that are compared with all others at a time
_FLOAT = 4  # bytes
_PHASE = "backbone"  # of the rounds, in the ledger


@dataclass(frozen=True, kw_only=True)
class Federation:
    """What a run of silos leaves.

    Attributes:
        model: the trained copy of the user's module, in evaluation mode.
        statement: what it cost an identity.
        history: rows of metrics.jsonl.
        directions: what each silo released last for the others to use, by its name, float32 [m, d].
        evaluation: of the untrained and the trained model on the test data, if any was given.
        finished: False if the run was asked to stop before its last round.
        folder: of the run, or None.
    """

    model: nn.Module
    statement: Statement
    history: list[dict[str, Any]]
    directions: dict[str, np.ndarray]
    evaluation: dict[str, Any]
    finished: bool
    folder: Path | None


def open_silos(
    plan: PrivacyFace, silos: Mapping[str, UserDataset] | Sequence[UserDataset], public: UserDataset | None
) -> dict[str, UserDataset]:
    """The silos by name, with those identities that have records.

    Raises:
        InputError: there is one silo, or they are not what the plan can train on: an identity is not one class, two
            silos share more than the plan accounts for, or something in them is public.
    """
    pairs = list(silos.items() if isinstance(silos, Mapping) else enumerate(silos, start=1))
    named = {name if isinstance(name, str) else f"silo {name}": users for name, users in pairs}
    if len(named) < len(pairs):
        raise InputError(f"two silos have one name, as 1 and 'silo 1' are; got {[name for name, _ in pairs]}")
    if len(named) < 2:
        raise InputError(f"privacyface needs two silos at least, got {len(named)}; for one use fedemb")
    found = {name: _identities(name, users) for name, users in named.items()}
    (first, one), *others = found.items()
    for name, other in [*others, *([] if public is None else [("the public people", public)])]:
        if (one.input_shape, one.dtype) != (other.input_shape, other.dtype):
            raise InputError(
                f"{first} has pictures of {one.input_shape} {one.dtype}, and {name} of {other.input_shape} "
                f"{other.dtype}; bring them to one size and type"
            )
    _refuse_shared(plan, found)
    sizes = [len(users) for users in found.values()]
    sharing = plan.sharing
    if isinstance(sharing, ExactClusters):
        few = min(found, key=lambda name: len(found[name]))
        if len(found[few]) < sharing.threshold:
            raise InputError(
                f"sharing.threshold is {sharing.threshold:,}, and {few} has {len(found[few]):,} identities; lower "
                "it, or leave this silo out"
            )
    if isinstance(sharing, Expert) and sharing.silo >= len(sizes):
        raise InputError(f"sharing.silo must be below {len(sizes)}, got {sharing.silo}")
    if plan.drop_out == 1.0 and plan.drop_out_silos >= len(sizes):
        raise InputError(
            f"all {len(sizes)} silos are offline in every round; lower drop_out, or drop_out_silos to {len(sizes) - 1}"
        )
    if public is None and (isinstance(sharing, ExactClusters) or plan.warm_up):
        raise InputError("candidates and a warm-up are made of public people; give public (--public)")
    if public is not None:
        _refuse_public(public, found)
    if plan.covered:
        plan.refuse_small(sizes)
    return found


def _identities(name: str, users: UserDataset) -> UserDataset:
    """Those with records, each of one class that no other has."""
    users.refuse_values("be distinguished as classes")
    users.refuse_attributes("be distinguished as classes")
    if users.of_sequences:
        raise InputError(f"{name} holds sequences of tokens; privacyface trains on pictures of identities")
    there = users.subset(np.flatnonzero(users.sizes))
    if len(there) < 2:
        raise InputError(f"{name} has {len(there)} identities with pictures; two at least can be compared")
    seen: dict[int, int] = {}
    for user in range(len(there)):
        classes = np.unique(there.examples(user)[1])
        if len(classes) > 1 or int(classes[0]) in seen:
            raise InputError(
                f"{name}: an identity must be one class, and {there.user_ids[user]!s:.60} is not; name one column as "
                "user and label"
            )
        seen[int(classes[0])] = user
    return there


def _refuse_shared(plan: PrivacyFace, silos: Mapping[str, UserDataset]) -> None:
    """Refuse names, and pictures, that are in more silos than the plan accounts for."""
    names = Counter(str(user) for users in silos.values() for user in set(users.user_ids))
    name, most = max(names.items(), key=lambda each: each[1])
    if most > plan.silos:
        raise InputError(
            f"{name!r:.60} is in {most} silos; drop the identity from all but one (--drop), rename it, or account for "
            f"it with silos={most}"
        )
    pictures: Counter[bytes] = Counter()
    for users in silos.values():
        pictures.update({digest for batch in rows_of(users) for digest in _digests(batch[0])})
    if pictures and (most := max(pictures.values())) > plan.silos:
        raise InputError(
            f"a picture is in {most} silos, so its person is, too; drop the identity (--drop), or account for it with "
            f"silos={most}"
        )


def _digests(pictures: Tensor) -> Iterator[bytes]:
    for picture in pictures.numpy():
        if picture.size and (picture != picture.flat[0]).any():  # an empty picture is no one's
            yield hashlib.blake2b(np.ascontiguousarray(picture).tobytes(), digest_size=16).digest()


def _refuse_public(public: UserDataset, silos: Mapping[str, UserDataset]) -> None:
    """Refuse public people who are identities of a silo."""
    known = set(map(str, public.user_ids))
    for name, users in silos.items():
        if both := sorted(known.intersection(map(str, users.user_ids))):
            raise InputError(
                f"{both[0]!r:.60} is public and an identity of {name}; leave it out of the public people, or rename it"
            )
        refuse_private_rows(rows_of(public), rows_of(users), of="public pictures")


def refuse_trained_on(measured: UserDataset | None, silos: Mapping[str, UserDataset], *, of: str) -> None:
    """Refuse to measure on identities of a silo, by name: what a validation shows is not covered; a test is on others.

    Args:
        measured: the people to measure on.
        silos: as `open_silos` gave them.
        of: what these people are called, "validation" or "test".

    Raises:
        InputError: a name is in both.
    """
    known = set() if measured is None else set(map(str, measured.user_ids))
    for name, users in silos.items():
        if both := sorted(known.intersection(map(str, users.user_ids))):
            raise InputError(f"{both[0]!r:.60} is in the {of} data and an identity of {name}; leave it out of one")


def spread_out(centres: np.ndarray, rule: SpreadOut) -> np.ndarray:
    """One step of the server on Σ max(0, margin − ‖w_i − w_j‖)² over all pairs of centres (FedFace, FedAwS).

    Args:
        centres: of all silos, float [n, d]; they are normalised.
        rule: weight, margin and learning rate.

    Returns:
        float32 [n, d], of length 1.
    """
    rows = centres / np.linalg.norm(centres, axis=1, keepdims=True)
    moved = np.empty_like(rows)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        distances = np.sqrt(np.maximum(2 - 2 * block @ rows.T, 0.0))
        # Both orders of a pair are in the sum. A pair at distance 0, as a row with itself, has no direction.
        pull = np.where((distances > 0) & (distances < rule.margin), (rule.margin - distances), 0.0)
        share = np.divide(pull, distances, out=np.zeros_like(pull), where=distances > 1e-6)
        gradient = -4.0 * (share.sum(axis=1, keepdims=True) * block - share @ rows)
        moved[start : start + _BLOCK] = block - rule.learning_rate * rule.weight * gradient
    return (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)


def _compared(rows: np.ndarray, projection: np.ndarray | None) -> np.ndarray:
    """Unit rows in the dimensions that are compared."""
    rows = np.asarray(rows, np.float64)
    rows = rows if projection is None else rows @ projection
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class _Records:
    """A silo's records in memory, with one class for each identity, for training without a bound."""

    def __init__(self, silos: Sequence[UserDataset]) -> None:
        parts = [
            gather(users, Cohort(np.array([0]), np.arange(len(users)), np.array([0, len(users)])), global_classes=False)
            for users in silos
        ]
        classes = np.cumsum([0, *(int(part.classes[0]) for part in parts)])
        labels = np.concatenate([part.labels + first for part, first in zip(parts, classes[:-1], strict=True)])
        inputs = np.concatenate([part.inputs for part in parts]) if len(parts) > 1 else parts[0].inputs
        self.data = ClientData(inputs, labels, np.array([0, len(labels)]), classes[-1:])

    def __len__(self) -> int:
        return int(self.data.classes[0])

    def centres(self, model: nn.Module, device: str) -> np.ndarray:
        """The normalised mean of each class's embeddings, float32 [classes, d]."""
        vectors = []
        with torch.inference_mode():
            for start in range(0, len(self.data.labels), 256):
                inputs, _ = self.data.take(np.arange(start, min(start + 256, len(self.data.labels))))
                vectors.append(functional.normalize(model(inputs.to(device)).float(), dim=1).cpu().numpy())
        return centres_of(np.concatenate(vectors), self.data.labels)

    def batches(self, phase: Phase, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in the order of a seed."""
        order, _ = orders_of_examples(phase, np.diff(self.data.offsets), np.array([seed]))
        size = phase.batch_size or max(1, len(order))
        for start in range(0, len(order), size):
            yield self.data.take(order[start : start + size])


@dataclass
class _State:
    """Where a run stands.

    Attributes:
        round: rounds done.
        done: silos of the round at hand that have sent their update.
        unused: gatherings of which no silo has a direction to use.
        directions: of each silo, float32 [m, d].
        total: the sum of the updates of the round at hand, float64 [size].
        heads: with sharing=fedface, the rows that a silo begins with; others begin with class centres.
        sent: bytes that silos have sent in the round at hand besides the backbone.
        losses: of the silos in the round at hand.
    """

    round: int
    done: int
    unused: int
    directions: list[np.ndarray]
    total: Tensor
    heads: dict[int, np.ndarray]
    sent: int = 0
    losses: list[float] | None = None


class Training:
    """One run; see the module.

    Args:
        plan: what runs.
        model: to be trained; it is copied.
        silos: as `open_silos` gave them.
        public: people who are not covered.
        device: where to train.

    Raises:
        InputError: the model gives no embeddings, or couples records.
    """

    def __init__(
        self,
        plan: PrivacyFace,
        model: nn.Module,
        silos: dict[str, UserDataset],
        public: UserDataset | None,
        *,
        device: str,
    ) -> None:
        refuse_no_values(model)
        refuse_batch_norm(model)
        self.plan, self.public, self.device = plan, public, device
        self.all, self.names = silos, list(silos)
        self.sizes = [len(users) for users in silos.values()]
        self.users = list(silos.values())
        outputs = probe(copied(model).to(device), self.users[0], device)
        if outputs.dim() != 2:
            raise InputError(
                f"the model must give embeddings [n, d], got shape {tuple(outputs.shape)}; drop its head or flatten"
            )
        self.dimension = outputs.shape[1]
        self._refuse_few_public()
        self.trained = Trainable(model, plan.trainable, device=device)
        self.contributions: list[LocalContribution] = []
        self.records: dict[int, _Records] = {}
        self._event = plan.event(self.sizes)
        self._losses: dict[int, Any] = {}
        self._clusters = plan.dplc(self.sizes)
        self._clusters_event = None if self._clusters is None else self._clusters.event(sum(self.sizes))
        if plan.covered:
            for users in self.users:
                plan.private_sum(len(users))  # refuses a cohort that is larger than the silo
                self.contributions.append(
                    LocalContribution(
                        model=model,
                        users=users,
                        client=plan.client,
                        trainable=plan.trainable,
                        global_classes=False,
                        clients_per_round=plan.cohort.size,
                        device=device,
                        head_seed=0,
                        drawn_slots=plan.cohort.users_per_client > 1,
                    )
                )
        elif isinstance(plan.sharing, Pooled):
            self.names, self.records = ["pooled"], {0: _Records(self.users)}
        else:
            chosen = [plan.sharing.silo] if isinstance(plan.sharing, Expert) else range(len(self.users))
            self.records = {silo: _Records([self.users[silo]]) for silo in chosen}
        self._behaviour = self.contributions[0].model_fingerprint() if self.contributions else None

    def _refuse_few_public(self) -> None:
        """Refuse candidates and projections that public people cannot give, before anything is trained."""
        sharing = self.plan.sharing
        if not isinstance(sharing, ExactClusters):
            return
        assert self.public is not None
        people = int(np.count_nonzero(self.public.sizes))
        if people < max(1, sharing.groups):
            raise InputError(
                f"sharing.groups is {sharing.groups}, and {people} public people have pictures; lower it, or give more"
            )
        if sharing.dimensions is not None and sharing.dimensions > min(people, self.dimension):
            raise InputError(
                f"sharing.dimensions is {sharing.dimensions}, and there are {people} public people with pictures and "
                f"embeddings of {self.dimension} dimensions; lower it"
            )

    def run(
        self,
        *,
        validation: UserDataset | None,
        test: UserDataset | None,
        out: Path | str | None,
        resume: bool,
        budget: Budget | None,
        about: Mapping[str, Any],
        task: Task | None,
        progress: Callable[[str, int, int], None],
    ) -> Federation:
        """All rounds; arguments as for `PrivacyFace.fit`."""
        plan = self.plan
        task = task or plan.default_task()
        for given in (validation, test):
            if given is not None:
                task.check(given)
        record = {**plan.to_json(), "about": {**about, "silos": dict(zip(self.all, self.sizes, strict=True))}}
        with Run.open(out, plan=record, seed=plan.seed, resume=resume, budget=budget) as run:
            fingerprint = self._fingerprint()
            untrained = None if test is None or resume else self._measured(task, self.trained.initial, test)
            before = run.saved(fingerprint) if resume else None
            if before is not None and before.state:
                self._refuse_other_model(before.state["behaviour"])
                self.trained.load_frozen(run.frozen())
            saved = run.begin(
                fingerprint, plan.cohort.adjacency, resume=resume, what="rounds of silos", costs=[self._event]
            )
            theta = self.trained.initial.clone()
            decay = plan.server.ema_decay
            server = Server(
                plan.optimizer_for(plan.private_sum(min(self.sizes))) if plan.covered else plan.server,
                self.trained.views(theta),
                schedule=plan.server.rate_schedule(plan.rounds),
                average=None if decay is None else MovingAverage(theta, decay=decay),
            )
            if saved is not None and saved.state:
                state = self._restored(saved.tensors, saved.state)
                theta.copy_(saved.tensors["theta"])
                server.load(saved.tensors, saved.state["server"])
            else:
                state = self._fresh(theta)
                run.keep_frozen(self.trained.frozen())
                self._keep(run, task, test, "untrained", untrained)
                self._warm_up(theta, run.source)
                self._save(run, theta, server, state)
            while state.round < plan.rounds and not run.asked_to_stop:
                before_it = state.round
                self._round(run, theta, server, state, progress)
                if state.round == before_it:
                    break  # asked to stop between two silos
                if validation is not None:
                    row = task.measure(self.trained.released_model(theta), validation, curve=False, device=self.device)
                    run.note({"round": state.round, "evaluation": "validation", **row})
                self._save(run, theta, server, state)
                progress("rounds", state.round, plan.rounds)
            public = {name: about[name] for name in plan.model_fields if name in about}
            return self._end(run, theta, server, state, task, test, untrained, public)

    def _fresh(self, theta: Tensor) -> _State:
        none = [np.zeros((0, self.dimension), np.float32) for _ in self.sizes]
        return _State(0, 0, 0, none, torch.zeros_like(theta, dtype=torch.float64), {}, losses=[])

    # One round.

    def _round(
        self, run: Run, theta: Tensor, server: Server, state: _State, progress: Callable[[str, int, int], None]
    ) -> None:
        """A round, or what is left of it; returns early where the run is asked to stop."""
        plan, started = self.plan, time.monotonic()
        offline = [] if isinstance(plan.sharing, Pooled) else plan.offline(state.round, len(self.sizes))
        there = [silo for silo in self._silos() if silo not in offline]
        gathers = state.round + 1 in getattr(plan.sharing, "at", ())
        if there and not state.done:
            if gathers:
                self._gather(run, theta, state, there)
            self._spend(run, state.round)
        elif gathers and not there:
            state.unused += 1
        if plan.scheme == "fedsgd" and there:
            state.total, losses = self._joint(run.source, theta, state, there)
            state.losses = losses
        else:
            for silo in there[state.done :]:
                if state.done and run.asked_to_stop:  # the silo before has been saved
                    return
                update, loss = self._update(run, theta, state, silo)
                state.total += update
                state.losses = [*(state.losses or []), loss]
                state.done += 1
                if silo != there[-1]:
                    self._save(run, theta, server, state)
                    progress("silos", state.done, len(there))
        if there:
            if isinstance(plan.sharing, SpreadOut):
                self._spread(state)
            mean = state.total / (1 if plan.scheme == "fedsgd" else len(there))
            server.step(self.trained.views(mean), state.round)
            if not torch.isfinite(theta).all():
                raise InputError(
                    f"the model became NaN or infinite in round {state.round + 1}; lower client.learning_rate or "
                    "server.learning_rate (this cost counts)"
                )
        row = {
            "round": state.round + 1,
            "epsilon": self._epsilon(state.round + 1),
            "silos": [self.names[silo] for silo in there],
            "clusters": [len(each) for each in state.directions],
            "bytes_backbone": 2 * _FLOAT * theta.numel() * len(there),
            "bytes_besides": state.sent,
            "not_private": {
                "loss": float(np.mean(state.losses)) if state.losses else None,
                "seconds": round(time.monotonic() - started, 4),
            },
        }
        state.round += 1
        state.done, state.sent, state.losses = 0, 0, []
        state.total = torch.zeros_like(state.total)
        run.note(row)

    def _silos(self) -> list[int]:
        """Those that take part at all."""
        if isinstance(self.plan.sharing, Pooled):
            return [0]
        return [self.plan.sharing.silo] if isinstance(self.plan.sharing, Expert) else list(range(len(self.sizes)))

    def _spend(self, run: Run, round: int) -> None:
        """Write down what a round costs, before any silo draws its noise; one entry for all silos."""
        plan = self.plan
        if not plan.covered:
            run.spend(acc.NonPrivate(), phase=_PHASE, round=round + 1)
            return
        smallest = plan.private_sum(min(self.sizes))
        entry = smallest.entry(round)
        assert entry is not None
        about = {**smallest.record(round, plan.clipping.norm), "silos": len(self.sizes)}
        run.spend(entry * plan.silos, phase=_PHASE, **about)

    def _update(self, run: Run, theta: Tensor, state: _State, silo: int) -> tuple[Tensor, float]:
        """What one silo sends: how far its backbone has moved down, float64 [size]; and its loss."""
        if not self.plan.covered:
            return self._trained_on_all(run.source, theta, state, silo)
        # All that was recorded so far is in the name, so copies of a stopped run that go on in different ways draw
        # different noise.
        source = run.source.within(f"silo {silo} after {run.history_word}")
        private, contribution = self.plan.private_sum(self.sizes[silo]), self.contributions[silo]
        norm = self.plan.clipping.norm
        contribution.rounds = self.plan.rounds
        loss = self._loss(state, silo)
        if contribution.local.loss is not loss:
            contribution.set_client(replace(self.plan.client, loss=loss))
        units = private.sampler.draw(contribution.population, state.round, source)
        cohort = private.grouping.group(units, state.round, source)
        share = contribution.clipped_sum(RoundContext(theta, cohort, state.round, private.bound, norm, source))
        row = share.tally.row()
        noisy = private.mechanism.release(share.total, scale=private.scale(norm), round=state.round, source=source)
        return noisy / private.grouping.clients, float(row.get("loss") or 0.0)

    def _loss(self, state: _State, silo: int) -> Any:
        """The plan's loss against the directions of all other silos; the same object until these change."""
        if silo not in self._losses:
            self._losses[silo] = self._made_loss(state, silo)
        return self._losses[silo]

    def _made_loss(self, state: _State, silo: int) -> Any:
        loss, sharing = self.plan.loss, self.plan.sharing
        others = [each for other, each in enumerate(state.directions) if other != silo and len(each)]
        if not others:
            return loss
        radius = getattr(sharing, "loss_radius", None)
        if radius is None:
            radius = sharing.radius if isinstance(sharing, ExactClusters) else 0.0
        return loss.against(torch.from_numpy(np.concatenate(others)).to(self.device), radius)  # pyright: ignore

    # Training without noise.

    def _trained_on_all(self, source: RandomSource, theta: Tensor, state: _State, silo: int) -> tuple[Tensor, float]:
        """Epochs of SGD on all records of a silo."""
        client, records, loss = self.plan.client, self.records[silo], self._loss(state, silo)
        seed = source.seed64("silo", state.round, silo)
        head, losses = self._head(theta, state, silo), []
        self.trained.load(theta)
        seed_dropout(seed, theta.device)
        optimizer = self._optimizer([head])
        for inputs, labels in records.batches(self._phase(client.epochs, client.max_examples), seed):
            value = loss.mean(self.trained.model(inputs.to(self.device)), head, labels.to(self.device))
            optimizer.zero_grad(set_to_none=True)
            value.backward(inputs=[*self.trained.parameters, head])
            optimizer.step()
            losses.append(value.detach())
        update = (theta - self.trained.vector).double()
        self._after(state, silo, head)
        return update, float(torch.stack(losses).mean()) if losses else 0.0

    def _joint(
        self, source: RandomSource, theta: Tensor, state: _State, there: Sequence[int]
    ) -> tuple[Tensor, list[float]]:
        """Steps on the mean of the silos' gradients, each silo with its own head."""
        plan = self.plan
        heads = {silo: self._head(theta, state, silo) for silo in there}
        losses_of = {silo: self._loss(state, silo) for silo in there}
        seeds = {silo: source.seed64("silo", state.round, silo) for silo in there}
        batches = {silo: self._passes(silo, seeds[silo]) for silo in there}
        self.trained.load(theta)
        seed_dropout(seeds[there[0]], theta.device)
        optimizer, found = self._optimizer(heads.values()), []
        for _ in range(plan.steps):
            optimizer.zero_grad(set_to_none=True)
            for silo in there:
                inputs, labels = next(batches[silo])
                outputs = self.trained.model(inputs.to(self.device))
                value = losses_of[silo].mean(outputs, heads[silo], labels.to(self.device))
                value.backward(inputs=[*self.trained.parameters, heads[silo]])
                found.append(value.detach())
            for parameter in self.trained.parameters:
                if parameter.grad is not None:
                    parameter.grad /= len(there)
            optimizer.step()
        update = (theta - self.trained.vector).double()
        for silo, head in heads.items():
            self._after(state, silo, head)
        return update, torch.stack(found).tolist()

    def _passes(self, silo: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of a silo, pass after pass."""
        while True:
            yield from self.records[silo].batches(self._phase(1), seed)
            seed += 1

    def _phase(self, epochs: int, most: int | None = None) -> Phase:
        """Passes over all records of a silo."""
        return Phase(local=None, shared=None, batch_size=self.plan.client.batch_size, epochs=epochs, most=most)

    def _optimizer(self, heads: Any) -> torch.optim.Optimizer:
        client = self.plan.client
        rate = client.learning_rate
        groups = [
            {"params": self.trained.parameters, "lr": rate},
            {"params": list(heads), "lr": rate * client.head_lr_scale},
        ]
        return torch.optim.SGD(groups, momentum=client.momentum)

    def _head(self, theta: Tensor, state: _State, silo: int) -> nn.Parameter:
        """Rows that a silo's head begins with: what the server gave back, or class centres."""
        rows = state.heads.get(silo)
        if rows is None:
            rows = self.records[silo].centres(self.trained.released_model(theta), self.device)
        return nn.Parameter(torch.from_numpy(rows.copy()).to(self.device))

    def _after(self, state: _State, silo: int, head: Tensor) -> None:
        self.trained.put_back()
        self.trained.forget()
        if isinstance(self.plan.sharing, SpreadOut):
            state.heads[silo] = functional.normalize(head.detach(), dim=1).cpu().numpy()
            state.sent += _FLOAT * head.numel()

    def _spread(self, state: _State) -> None:
        """Move all heads away from each other, at the server."""
        rule = self.plan.sharing
        assert isinstance(rule, SpreadOut)
        silos = sorted(state.heads)
        moved = spread_out(np.concatenate([state.heads[silo] for silo in silos]).astype(np.float64), rule)
        ends = np.cumsum([len(state.heads[silo]) for silo in silos])
        state.heads = dict(zip(silos, np.split(moved, ends[:-1]), strict=True))

    def _warm_up(self, theta: Tensor, source: RandomSource) -> None:
        """Train on the public people."""
        if not self.plan.warm_up or self.public is None:
            return
        records = _Records([self.public.subset(np.flatnonzero(self.public.sizes))])
        seed = source.seed64("warm-up")
        rows = records.centres(self.trained.released_model(theta), self.device)
        head = nn.Parameter(torch.from_numpy(rows).to(self.device))
        self.trained.load(theta)
        seed_dropout(seed, theta.device)
        optimizer = self._optimizer([head])
        for inputs, labels in records.batches(self._phase(self.plan.warm_up), seed):
            value = self.plan.loss.mean(self.trained.model(inputs.to(self.device)), head, labels.to(self.device))  # pyright: ignore
            optimizer.zero_grad(set_to_none=True)
            value.backward(inputs=[*self.trained.parameters, head])
            optimizer.step()
        theta.copy_(self.trained.vector)
        self.trained.put_back()
        self.trained.forget()

    # What silos show each other.

    def public_share(self) -> float | None:
        """The largest share of the public people in the cap of a candidate, at the start; None without clusters."""
        sharing = self.plan.sharing
        if not isinstance(sharing, ExactClusters):
            return None
        model = self.trained.released_model(self.trained.initial)
        assert self.public is not None
        known = class_centres(model, self.public, device=self.device)[0]
        candidates, projection = self._candidates(model, [], sharing)
        inside = _compared(known, projection) @ _compared(candidates, projection).T >= np.cos(sharing.radius)
        return float(inside.mean(axis=0).max())

    def _gather(self, run: Run, theta: Tensor, state: _State, there: Sequence[int]) -> None:
        """Directions of the silos that are online; of one that has none, the others go on without."""
        sharing, model = self.plan.sharing, self.trained.released_model(theta)
        centres = [class_centres(model, self.users[silo], device=self.device)[0] for silo in there]
        name = f"clusters {state.round + 1}"
        if isinstance(sharing, NoisyCentres):
            found = self._noisy_centres(run, centres, sharing, name)
        elif isinstance(sharing, ExactClusters):
            candidates, projection = self._candidates(model, centres, sharing)
            if isinstance(sharing, PrivateClusters):
                assert self._clusters is not None
                released = self._clusters.release_in_silos(
                    run, centres, candidates, releases=sharing.releases, name=name, projection=projection
                )
                found = [np.array([each.direction for each in silo if each.usable], np.float32) for silo in released]
                state.sent += sum(_FLOAT * (self.dimension + 2) * len(silo) for silo in released)
            else:
                found = self._exact_clusters(run, centres, candidates, projection, sharing, name)
        else:
            return
        for silo, directions in zip(there, found, strict=True):
            state.directions[silo] = directions.reshape(-1, self.dimension).astype(np.float32)
            if not isinstance(sharing, PrivateClusters):
                state.sent += _FLOAT * directions.size
        self._losses.clear()
        state.unused += not any(len(directions) for directions in found)

    def _candidates(
        self, model: nn.Module, centres: Sequence[np.ndarray], sharing: ExactClusters
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Public directions, and the public projection in which they are compared."""
        assert self.public is not None
        known = class_centres(model, self.public, device=self.device)[0]
        for each in centres:
            refuse_private(each, known)
        candidates = public_directions(known, sharing.groups) if sharing.groups else known
        return candidates, None if sharing.dimensions is None else principal_directions(known, sharing.dimensions)

    def _noisy_centres(
        self, run: Run, centres: Sequence[np.ndarray], sharing: NoisyCentres, name: str
    ) -> list[np.ndarray]:
        times = len(sharing.at) * self.plan.silos
        noise = acc.calibrate(
            lambda z: acc.Gaussian(z / 2) * times,  # one centre exchanged for another is moved by 2 at most
            epsilon=sharing.epsilon,
            delta=self.plan.delta_of(self.sizes),
        )

        def draw(source: RandomSource) -> dict[str, Tensor]:
            found = {}
            for place, rows in enumerate(centres):
                normal = source.stream("centre noise", place).normal(rows.size).reshape(rows.shape)
                found[str(place)] = functional.normalize(torch.from_numpy(rows + noise * normal), dim=1).float()
            return found

        released = run.release(name, acc.NonPrivate(), draw, noise_std=noise)
        return [released[str(place)].numpy() for place in range(len(centres))]

    def _exact_clusters(
        self,
        run: Run,
        centres: Sequence[np.ndarray],
        candidates: np.ndarray,
        projection: np.ndarray | None,
        sharing: ExactClusters,
        name: str,
    ) -> list[np.ndarray]:
        """The means of the densest caps, in all dimensions."""
        limit = np.cos(sharing.radius)

        def draw(source: RandomSource) -> dict[str, Tensor]:
            found = {}
            for place, rows in enumerate(centres):
                inside = _compared(rows, projection) @ _compared(candidates, projection).T >= limit
                left, means = np.ones(len(rows), bool), []
                for _ in range(sharing.releases):
                    counts = (inside & left[:, None]).sum(axis=0)
                    chosen = inside[:, counts.argmax()] & left
                    if counts.max() < sharing.threshold:
                        break
                    mean = rows[chosen].mean(axis=0)
                    means.append(mean / np.linalg.norm(mean))
                    left &= ~chosen
                found[str(place)] = torch.from_numpy(np.array(means, np.float32).reshape(-1, self.dimension))
            return found

        released = run.release(name, acc.NonPrivate(), draw)
        return [released[str(place)].numpy() for place in range(len(centres))]

    # Its files.

    def _epsilon(self, rounds: int) -> float | None:
        """ε after so many rounds, with all clusters released by then; None without noise."""
        plan = self.plan
        if not plan.covered:
            return None
        event = plan.private_sum(min(self.sizes)).event(rounds) * plan.silos
        if self._clusters_event is not None:
            event = self._clusters_event + event
        return acc.guarantee(event, plan.cohort.adjacency).epsilon(plan.delta_of(self.sizes))

    def _save(self, run: Run, theta: Tensor, server: Server, state: _State, *, complete: bool = False) -> None:
        tensors, numbers = server.state()
        own = {f"directions.{silo}": torch.from_numpy(each) for silo, each in enumerate(state.directions)}
        own |= {f"head.{silo}": torch.from_numpy(each) for silo, each in state.heads.items()}
        run.save(
            {"theta": theta.clone(), "total": state.total.clone(), **tensors, **own},
            {
                "round": state.round,
                "done": state.done,
                "unused": state.unused,
                "sent": state.sent,
                "losses": state.losses,
                "server": numbers,
                "behaviour": self._behaviour,
            },
            complete=complete,
        )

    def _restored(self, tensors: dict[str, Tensor], saved: dict[str, Any]) -> _State:
        heads = {int(name[5:]): each.numpy() for name, each in tensors.items() if name.startswith("head.")}
        return _State(
            saved["round"],
            saved["done"],
            saved["unused"],
            [tensors[f"directions.{silo}"].numpy() for silo in range(len(self.sizes))],
            tensors["total"],
            heads,
            saved["sent"],
            saved["losses"],
        )

    def _refuse_other_model(self, then: ModelFingerprint | None) -> None:
        if then is not None and self._behaviour is not None:
            refuse_other(then, self._behaviour, processes_then=1, processes_now=1)

    def _fingerprint(self) -> str:
        parts = [json.dumps(self.plan.to_json(), sort_keys=True), self.trained.shapes(), *self.names]
        parts += [users.fingerprint() for users in (*self.users, *([] if self.public is None else [self.public]))]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def _measured(self, task: Task, theta: Tensor, test: UserDataset) -> dict[str, Any]:
        return task.measure(self.trained.released_model(theta), test, curve=True, device=self.device)

    def _keep(self, run: Run, task: Task, test: UserDataset | None, name: str, row: dict[str, Any] | None) -> None:
        if run.folder is not None and row is not None:
            run.folder.add_evaluation(name, row, task.about_test(test, row))

    def _end(
        self,
        run: Run,
        theta: Tensor,
        server: Server,
        state: _State,
        task: Task,
        test: UserDataset | None,
        untrained: dict[str, Any] | None,
        public: dict[str, Any],
    ) -> Federation:
        plan, finished = self.plan, state.round == self.plan.rounds
        if finished:
            self._save(run, theta, server, state, complete=True)
        found = [line for each in self.contributions for line in each.assumptions()]
        stated = [line for place, line in enumerate(found) if line not in found[:place]]
        facts = plan.facts(self.sizes, state.round, stated, state.unused)
        released = server.released(theta)
        statement = run.finish(self.trained.released(released), facts, metadata=public, complete=finished)
        evaluation = {} if run.folder is None else run.folder.evaluation()
        if untrained is not None:
            evaluation["untrained"] = untrained
        if finished and test is not None and "trained" not in evaluation:
            evaluation["trained"] = self._measured(task, released, test)
            self._keep(run, task, test, "trained", evaluation["trained"])
        return Federation(
            model=self.trained.released_model(released),
            statement=statement,
            history=run.history,
            directions=dict(zip(self.all, state.directions, strict=True)),
            evaluation=evaluation,
            finished=finished,
            folder=None if run.folder is None else run.folder.path,
        )
