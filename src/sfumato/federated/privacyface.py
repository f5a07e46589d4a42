"""PrivacyFace: silos that share no people train one backbone, and show each other private clusters of class centres.

Few silos (organisations) hold many identities each. In every round each silo trains the received backbone with a head
of its own, and the server takes a step on the unweighted mean of their updates. In the rounds `sharing.at` each silo
also releases directions of dense groups of its class centres (`DPLC`); the others use them as negatives, which their
own records lack. `sharing` chooses other things that silos may show each other, for comparison.

- **Unit.** One identity with all its pictures, which comes or goes. It is in one silo; where a person may be in k of
  them, `silos` counts every release k times.
- **What leaves a silo.** Its clusters, and its update in each round. All of it is accounted, not only the mean: the
  other silos and the server may see each one.
- **Clusters.** As of `DPLC`: an identity moves a sum by its own centre alone, given the backbone that makes centres.
- **Backbone.** With noise, a silo's update is a round of DP-FedEmb: identities are sampled by coins of their own,
  thrown into virtual clients, and the clients' clipped deltas are added up with noise. The negatives in a client's
  loss are other silos' releases. A head never leaves. An empty cohort releases noise.
- **One cost.** Silos draw independent noise of one size on disjoint identities, so an identity pays for its own silo
  alone (parallel composition), and the ledger has one entry for all silos. Cohorts are of one planned size, so that
  identities of the smallest silo are drawn most often: the entry is theirs, and bounds that of all others, as sampling
  at a lower rate is the same mechanism behind another coin. It is written before any silo draws its noise.
- **Free.** The mean, the server's step, negatives, and which silo is offline, which follows from a public seed.
- **Without noise on the backbone** the run has no guarantee as a whole. Its statement states what the clusters alone
  cost, given the backbones that made them.

A head begins in each round with the class centres of the received backbone, so that a silo keeps nothing of its
records from one round to the next, and a run that was stopped goes on as it would have.

>>> plan = PrivacyFace(rounds=10, sharing={"kind": "private", "epsilon": 2.0, "radius": 1.4})
>>> plan.covered, plan.sharing.epsilon
(False, 2.0)
>>> private = plan.replace(rounds=200).calibrate(epsilon=8.0, sizes=[1900, 1300])
>>> private.covered, private.statement([1900, 1300]).epsilon <= 8.0
(True, True)

References:
    Meng, Zhou, Li, Wang, Cheng: Improving Federated Learning Face Recognition via Privacy-Agnostic Clusters. ICLR 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sfumato import _check
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._parts import part, plan
from sfumato._random import RandomSource
from sfumato._types import Algorithm, Assumption, Stated, Unit
from sfumato.clipping import CLIPPINGS, Flat, NormBound
from sfumato.federated.client import ClientTraining, LocalHead
from sfumato.federated.clustering import DPLC
from sfumato.federated.fedavg import CLIENTS, FederatedPlan
from sfumato.federated.losses import CosFace, Cosine
from sfumato.federated.sharing import SHARING, Directions, Expert, Nothing, PrivateClusters, Sharing
from sfumato.mechanisms import NOISES, Gaussian, Mechanism
from sfumato.sampling import COHORTS, Poisson, Sampler
from sfumato.statement.facts import Facts, make_statement
from sfumato.statement.sentences import render
from sfumato.statement.verdict import default_delta
from sfumato.training.server import OPTIMIZERS, Optimizer

if TYPE_CHECKING:
    from torch import nn

    from sfumato.accounting import Event
    from sfumato.data import UserDataset
    from sfumato.federated.silos import Federation
    from sfumato.ledger import Budget
    from sfumato.statement import Statement
    from sfumato.training.contribution import Task
    from sfumato.training.forecast import Forecast


@plan
class PrivacyFace(FederatedPlan):
    """Silos with one backbone and private clusters; fields with those of `FederatedPlan`.

    Without noise the fields `cohort` and `clipping` have no effect: a silo trains on all its records.

    Attributes:
        sharing: what silos show each other besides the backbone. "private" are clusters under a guarantee, "backbone"
            is federated averaging. For comparison, without a guarantee: "exact" clusters, "naive" noise on every
            centre, "fedface". "expert" trains one silo alone, and "pooled" all records in one place.
        scheme: "fedavg" takes the mean of what silos have trained; "fedsgd" averages their gradients in every step.
        steps: joint steps of a round, for scheme=fedsgd.
        silos: silos that may hold the same person, >= 1; each of an identity's releases counts so often.
        warm_up: epochs on the public people before the first round.
        drop_out: probability that silos are offline in a round, in [0, 1].
        drop_out_silos: how many are offline then, drawn at random.
        drop_out_seed: public; runs with the same one have the same silos offline.
    """

    rounds: int = 10
    sharing: Sharing = part(default=PrivateClusters(), converter=SHARING)
    scheme: Literal["fedavg", "fedsgd"] = "fedavg"
    steps: int = 100
    silos: int = 1
    warm_up: int = 0
    drop_out: float = 0.0
    drop_out_silos: int = 1
    drop_out_seed: int = 0
    cohort: Sampler = part(default=Poisson(users_per_client=8), converter=COHORTS)
    clipping: NormBound = part(default=Flat(), converter=CLIPPINGS)
    noise: Mechanism = part(default=Gaussian(noise_multiplier=0.0), converter=NOISES)
    client: ClientTraining = part(  # pyright: ignore
        default=ClientTraining(loss=CosFace(), head=LocalHead(start="means"), max_examples=None), converter=CLIENTS
    )
    server: Optimizer = part(default=Optimizer(learning_rate=1.0, momentum=0.0), converter=OPTIMIZERS)

    name: ClassVar[str] = "privacyface"
    unit: ClassVar[Unit] = "identity"
    hidden: ClassVar[tuple[str, ...]] = ("population",)
    """Fields that are no options of the command."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(("fedavg", "fedsgd"), scheme=self.scheme)
        _check.whole(steps=self.steps, silos=self.silos, drop_out_silos=self.drop_out_silos)
        _check.whole(at_least=0, warm_up=self.warm_up, drop_out_seed=self.drop_out_seed)
        _check.between(0.0, 1.0, drop_out=self.drop_out)
        if not isinstance(self.client.loss, Cosine):
            raise InputError("privacyface compares angles: client.loss must be cosface, arcface or cosine")
        if not isinstance(self.client.head, LocalHead) or self.client.head.classes == "global":
            raise InputError("heads of privacyface never leave their silo; use client.head=local with classes=local")
        if self.client.negatives:
            raise InputError("negatives of privacyface are other silos' clusters; use client.negatives=0")
        if self.population is not None:
            raise InputError("the silos say how many identities there are; leave population out")
        if isinstance(self.sharing, Directions) and self.sharing.at[-1] > self.rounds:
            raise InputError(
                f"sharing.at names round {self.sharing.at[-1]}, and there are {self.rounds}; lower it, or raise rounds"
            )
        if self.noise.noise_multiplier != 0:
            self._refuse_unaccounted()

    def _refuse_unaccounted(self) -> None:
        """Refuse noise on the backbone with anything that is not accounted with it."""
        if type(self.sharing) not in (PrivateClusters, Nothing):
            raise InputError(
                f"sharing={SHARING.word(self.sharing)} has no guarantee, and noise on the backbone gives none; use "
                "noise=0, or sharing=private"
            )
        if type(self.noise) is not Gaussian or type(self.cohort) is not Poisson or self.clipping.counted is not None:
            raise InputError(
                "a private backbone of silos is accounted for noise=gaussian, cohort=poisson and a fixed norm alone; "
                "use these"
            )
        if self.scheme != "fedavg":
            raise InputError("a private backbone has one noisy update a round; use scheme=fedavg, or noise=0")

    @property
    def covered(self) -> bool:
        """Whether the backbone has noise, and so the run a guarantee as a whole."""
        return self.noise.noise_multiplier != 0

    def delta_of(self, sizes: Sequence[int]) -> float:
        """The chosen δ, or 0.01 / identities of all silos."""
        return default_delta(sum(sizes)) if self.delta is None else self.delta

    def dplc(self, sizes: Sequence[int]) -> DPLC | None:
        """The releases of clusters, with the noise of the whole run; None where there are none."""
        sharing = self.sharing
        if not isinstance(sharing, PrivateClusters):
            return None
        return DPLC(
            epsilon=sharing.epsilon,
            delta=self.delta_of(sizes),
            radius=sharing.radius,
            threshold=sharing.threshold,
            releases=sharing.releases * len(sharing.at),
            selection_share=sharing.selection_share,
            silos=self.silos,
            seed=self.seed,
        )

    def event(self, sizes: Sequence[int]) -> Event:
        """What the whole run costs one identity, for so many identities in each silo."""
        clusters = self.dplc(sizes)
        found = [] if clusters is None else [clusters.event(sum(sizes))]
        found.append(self._rounds_event(min(sizes)) if self.covered else acc.NonPrivate())
        return found[0] if len(found) == 1 else found[0] + found[1]

    def _rounds_event(self, identities: int) -> Event:
        return self.private_sum(identities).event(self.rounds) * self.silos

    def calibrate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, epsilon: float, sizes: Sequence[int], delta: float | None = None
    ) -> Self:
        """A plan like this one whose noise on the backbone, together with its clusters, costs (ε, δ).

        Args:
            epsilon: of the whole run, > 0; more than that of the clusters.
            sizes: identities of each silo.
            delta: in (0, 1); None for that of the plan, or 0.01 / identities.

        Raises:
            InputError: no noise reaches it.
        """
        _check.positive(epsilon=epsilon)
        chosen = self.delta_of(sizes) if delta is None else delta
        base = replace(self, delta=chosen)
        base.refuse_small(sizes)
        clusters, adjacency = base.dplc(sizes), base.cohort.adjacency
        before = None if clusters is None else clusters.event(sum(sizes))
        if before is not None and acc.guarantee(before, adjacency).epsilon(chosen) >= epsilon:
            raise InputError(
                f"the clusters cost epsilon {clusters.epsilon if clusters else 0:g} of {epsilon:g} for the whole run; "
                "lower sharing.epsilon"
            )

        def event(noise_multiplier: float) -> Event:
            noisy = replace(base, noise=replace(base.noise, noise_multiplier=noise_multiplier))
            rounds = noisy._rounds_event(min(sizes))
            return rounds if before is None else before + rounds

        noise = acc.calibrate(event, epsilon=epsilon, delta=chosen, adjacency=adjacency)
        return replace(base, noise=replace(base.noise, noise_multiplier=noise))

    def forecast(self, sizes: Sequence[int], trained: Mapping[str, int]) -> Forecast:
        """Noise of the backbone against its signal: silos add noise of their own to updates that are averaged.

        Of silos that drop out the expected number is left out.

        Args:
            sizes: identities of each silo.
            trained: how many numbers each parameter of the backbone has, by its name.
        """
        from sfumato.training.forecast import forecast

        whole, taking_part = self.private_sum(min(sizes)), len(sizes) - self.drop_out * self.drop_out_silos
        return forecast(whole, trained, population=sum(sizes), silos=max(1.0, taking_part))

    def refuse_small(self, sizes: Sequence[int]) -> None:
        """Refuse a cohort that the smallest silo cannot fill; sizes are identities of each silo."""
        cohort, few = self.cohort, min(sizes)
        units = cohort.size * cohort.users_per_client
        if units > few:
            raise InputError(
                f"{cohort.size} clients × {cohort.users_per_client} identities = {units} identities a round, but the "
                f"smallest silo has {few}; lower cohort.size or cohort.users_per_client"
            )

    def statement(self, sizes: Sequence[int]) -> Statement:
        """What a run would state."""
        source = "os" if self.seed is None else "seeded"
        return make_statement(self.event(sizes), self.facts(sizes, self.rounds), noise_source=source)

    def facts(self, sizes: Sequence[int], rounds: int, stated: Sequence[Stated] = (), unused: int = 0) -> Facts:
        """What cannot be read off the ledger.

        Args:
            sizes: identities of each silo.
            rounds: that ran.
            stated: more sentences that the guarantee rests on.
            unused: rounds of `sharing.at` in which no silo had a cluster to use.
        """
        clusters, sharing = self.dplc(sizes), self.sharing
        parts = ["clusters by the exponential mechanism on public directions, then Gaussian sums of class centres"]
        parts = parts if clusters is not None else []
        where = f"all identities of {len(sizes)} silos"
        if self.covered:
            private = self.private_sum(min(sizes))
            where = f"{private.sampler.describe()} in the smallest of {len(sizes)} silos, or less; all for clusters"
            z = private.mechanism.multiplier
            parts.append(
                f"in each silo {rounds} Gaussian sums of contributions {private.bound.describe()}, noise multiplier "
                f"{z:.6g}, averaged over silos"
            )
        lines: list[Stated] = [Assumption("silos_disjoint", {"count": len(sizes)}), Assumption("one_silo")]
        if self.silos > 1:
            lines = [Assumption("silos_overlap", {"count": len(sizes), "silos": self.silos})]
        if clusters is not None:
            lines += [Assumption("own_centres"), Assumption("public_candidates")]
        if self.cohort.users_per_client > 1 and self.covered:
            lines.append(Assumption("virtual_clients"))
        if self.covered:
            lines += [Assumption("clients_tried"), Assumption("began_public"), Assumption("training_part")]
        if self.covered and rounds < self.rounds:
            lines.append(Assumption("silos_stopped", {"rounds": rounds, "planned": self.rounds}))
        few = Assumption("silos_without_clusters", {"rounds": unused, "gatherings": len(getattr(sharing, "at", ()))})
        lines += [few] if unused else []
        alone = self._clusters_alone(clusters, sizes)
        if unused:
            alone = f"{alone} {render(few)}"
        alone = alone.removesuffix(".")  # the sentence has one
        return Facts(
            unit=self.unit,
            adjacency=self.cohort.adjacency,
            population=sum(sizes),
            delta=self.delta_of(sizes),
            sampling=where,
            mechanism="; then ".join(parts) or "no noise",
            attained=False,
            covered=Assumption("covers_silos"),
            assumptions=(*lines, *stated),
            covered_part=None
            if clusters is None
            else (Assumption("only_clusters_covered"), Assumption("released_clusters")),
            no_guarantee=Assumption("silos_backbone_unprotected", {"clusters": alone}),
            disclosure={
                "trust_model": render(Assumption("trust_silos")),
                **({"released": render(Assumption("released_by_silos"))} if self.covered else {}),
            },
        )

    def _clusters_alone(self, clusters: DPLC | None, sizes: Sequence[int]) -> str:
        """What a statement of a backbone without noise states of what silos shared with it."""
        if clusters is not None:
            cost = acc.guarantee(clusters.event(sum(sizes)), self.cohort.adjacency)
            delta = self.delta_of(sizes)
            values = {"epsilon": f"{math.ceil(1000 * cost.epsilon(delta)) / 1000:g}", "delta": f"{delta:.3g}"}
            return str(render(Assumption("silos_clusters_protected", values)))
        shared = not isinstance(self.sharing, Nothing | Expert)
        return str(render(Assumption("silos_clusters_unprotected" if shared else "silos_shared_nothing")))

    def offline(self, round: int, count: int) -> list[int]:
        """Silos that are offline in a round, from 0: the same for all runs with the same seed, whatever they share."""
        if not self.drop_out:
            return []
        stream = RandomSource.from_seed(self.drop_out_seed).within("drop-out").stream("silos", round)
        if stream.uniform(1)[0] >= self.drop_out:
            return []
        return sorted(stream.permutation(count)[: self.drop_out_silos].tolist())

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        model: nn.Module,
        silos: Mapping[str, UserDataset] | Sequence[UserDataset],
        *,
        public: UserDataset | None = None,
        validation: UserDataset | None = None,
        test: UserDataset | None = None,
        out: Path | str | None = None,
        resume: bool = False,
        budget: Budget | None = None,
        about: Mapping[str, Any] | None = None,
        device: str = "cpu",
        task: Task | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Federation:
        """Train, and report what it cost.

        Args:
            model: maps inputs to embeddings; it is copied. It is public, and was trained on no record of the silos.
            silos: the records of each, by name; users are identities, each a class of its own.
            public: people who are not covered: candidates are made of them, and `warm_up` trains on them.
            validation: public people to measure the model on after every round, none of a silo; what they show is not
                covered.
            test: people to measure the model on before the first and after the last round, none of a silo.
            out: folder of the run; None keeps everything in memory.
            resume: go on with the run in `out`.
            budget: what the run may cost.
            about: JSON for plan.json.
            device: where to train.
            task: how the model is measured; None for recall at a false accept rate.
            progress: receives what is in progress ("silos" of a round, "rounds"), how much is done, and of how much.

        Raises:
            InputError: a mistake in the plan, the data or the folder.
        """
        from sfumato.federated.silos import Training, open_silos, refuse_trained_on

        held = open_silos(self, silos, public)
        refuse_trained_on(validation, held, of="validation")
        refuse_trained_on(test, held, of="test")
        return Training(self, model, held, public, device=device).run(
            validation=validation,
            test=test,
            out=out,
            resume=resume,
            budget=budget,
            about=about or {},
            task=task,
            progress=progress or (lambda stage, done, of: None),
        )


ALGORITHM = Algorithm(
    name="privacyface",
    package="sfumato.federated",
    plan="PrivacyFace",
    records="silos",
    title="PrivacyFace",
    summary="one embedding model over organisations that share no people, which show each other private clusters",
    about="Train one embedding model over several organisations (silos) that share no people (PrivacyFace). Each "
    "trains with a head of its own, and releases private clusters of its class centres, which the others use as "
    "negatives. With --epsilon the backbone has noise, too, and one guarantee covers both.",
    example="sfumato privacyface --data glyphs --deal 3 --public-share 0.2 --epsilon 8 --dry-run",
    matters="data deal public public_share epsilon sharing rounds out resume dry_run",
)
