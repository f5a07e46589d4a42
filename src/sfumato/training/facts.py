"""What a plan that ran tells its statement beside the ledger."""

from collections.abc import Sequence

from sfumato.guard import not_seen
from sfumato.runs import Alternative, Facts
from sfumato.sampling import PoissonSampling, VirtualClients
from sfumato.training.initial_release import Opening
from sfumato.training.plan import Plan
from sfumato.training.private_sum import PrivateSum


def facts_of(
    plan: Plan,
    private_sum: PrivateSum,
    *,
    rounds: int,
    population: int,
    delta: float,
    opening: Opening | None = None,
    data_assumptions: Sequence[str] = (),
) -> Facts:
    """The facts of the rounds that ran.

    Args:
        plan: the plan that ran.
        private_sum: its parts.
        rounds: rounds that ran.
        population: public number of units.
        delta: δ.
        opening: what was released before the rounds.
        data_assumptions: what is taken to be public about the data.
    """
    return Facts(
        unit=plan.unit,
        adjacency=private_sum.sampler.adjacency,
        population=population,
        delta=delta,
        sampling=private_sum.sampler.describe(),
        mechanism=_mechanism(private_sum, rounds) if opening is None else _both(opening, private_sum, rounds),
        # a user who is alone in a group moves the sum by one bound, and nobody can rule that out by choosing records
        attained=opening is None and not isinstance(private_sum.grouping, VirtualClients),
        assumptions=(
            *_assumptions(plan, private_sum, rounds),
            *plan.assumptions(),
            *(() if opening is None else opening.assumptions),
            *data_assumptions,
        ),
        # an opening is one user's and not a virtual client's, and may fail, which Rényi accounting does not know
        alternatives=() if opening is not None else tuple(_alternatives(plan, private_sum, rounds)),
        disclosure={
            "contribution": f"Each contribution is {private_sum.bound.disclose()} in every round that draws the unit, "
            "and counts as zero if it is not finite.",
            "sampling_as_run": "Yes: the sampler that ran is the object that the cost was derived from.",
        },
    )


def _mechanism(private_sum: PrivateSum, rounds: int) -> str:
    z = private_sum.mechanism.noise_multiplier
    if z == 0:
        return f"no noise: {rounds} rounds without any guarantee"
    count = "" if private_sum.bound.quantile is None else ", with a noisy count for the norm"
    what = private_sum.mechanism.describe()
    return f"{rounds} {what} of contributions {private_sum.bound.describe()}, noise multiplier {z:.6g}{count}"


def _both(opening: Opening, private_sum: PrivateSum, rounds: int) -> str:
    return f"{opening.words}; then {_mechanism(private_sum, rounds)}"


_GIVEN = (
    "What the training began with is public or has a statement of its own: starting weights and buffers that were "
    "given, and inputs that norm layers were given as public. What they tell of the records is not counted here."
)
_SPLIT = (
    "Which records were trained on was decided without looking at what they hold. Those that were kept for validation "
    "and test are not covered by the noise; what was measured on them is private as they are."
)
_CLIENTS = (
    "No client changes another one's contribution: clients of the data were tried in two orders before the first "
    "round, and others in rounds that were drawn at random. Such a trial does not see what a model begins to keep or "
    "use only later or with other records, and what it keeps in files, in shared memory or in other processes."
)


def _assumptions(plan: Plan, private_sum: PrivateSum, rounds: int) -> list[str]:
    lines = [not_seen(rounds) if plan.unit in ("example", "label") else _CLIENTS, _GIVEN, _SPLIT]
    if isinstance(private_sum.grouping, VirtualClients):
        lines.append(
            "Sampled users are assigned to virtual clients independently and uniformly, and one user can move the "
            "clipped sum by twice the clip norm."
        )
    if private_sum.sampler.adjacency == "zero_out":
        lines.append(
            f"Who takes part in which round follows from the plan alone and not from any record, and is not hidden: "
            f"covered is what one {plan.unit.replace('_', ' ')} contributes, in as many rounds as the limits allow."
        )
    if private_sum.whole and rounds < private_sum.rounds:
        lines.append(
            f"The run was stopped after {rounds} of {private_sum.rounds} rounds; the cost is that of all planned ones."
        )
    elif rounds < private_sum.rounds:
        lines.append(
            f"The run was stopped after {rounds} of {private_sum.rounds} rounds, and that was decided without looking "
            "at anything private. If it was decided by the released models, the cost of all planned rounds holds; if "
            "by losses or other metrics of private records, no figure here covers what the choice tells."
        )
    return lines


def _alternatives(plan: Plan, private_sum: PrivateSum, rounds: int) -> list[Alternative]:
    """The same run under other conventions."""
    found = [Alternative(name="this statement, by Rényi accounting", unit=plan.unit, method="rdp")]
    # limits on participation are a user's: groups are formed anew each round, and no virtual client has any
    if isinstance(private_sum.grouping, VirtualClients) and isinstance(private_sum.sampler, PoissonSampling):
        client = private_sum.contributor_event(rounds)
        paper = "the paper's convention: neighbours differ in a whole virtual client (Xu et al. 2022)"
        found += [
            Alternative(name=f"{paper}, by Rényi accounting", unit="virtual_client", event=client, method="rdp"),
            Alternative(name=paper, unit="virtual_client", event=client),
        ]
    return found
