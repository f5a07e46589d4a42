"""From a run to its statement: what was promised to whom, under which assumptions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sfumato._types import Unit
from sfumato.accounting import Event, Statement, guarantee
from sfumato.accounting.statement.disclosure import NOT_STATED
from sfumato.accounting.statement.verdict import FPR
from sfumato.sampling import PoissonSampling, VirtualClients
from sfumato.training.loop import PrivateSum

if TYPE_CHECKING:
    from sfumato.training.plan import Plan


def make_statement(
    plan: "Plan",
    private_sum: PrivateSum,
    *,
    event: Event,
    rounds: int,
    population: int,
    delta: float,
    noise_source: str,
    data_assumptions: Sequence[str] = (),
) -> Statement:
    """The statement of the rounds that ran.

    Args:
        plan: the plan that ran.
        private_sum: its parts.
        event: everything that was released, from the ledger; for one unit.
        rounds: rounds that ran.
        population: public number of units.
        delta: δ.
        noise_source: "os" or "seeded".
        data_assumptions: what is taken to be public about the data.
    """
    adjacency = private_sum.sampler.adjacency
    cost = guarantee(event, adjacency=adjacency)
    lower, upper = cost.epsilon_interval(delta)
    return Statement(
        unit=plan.unit,
        adjacency=adjacency,
        epsilon=upper,
        delta=delta,
        epsilon_lower=lower,
        rho=cost.rho(),
        sampling=private_sum.sampler.describe(),
        mechanism=_mechanism(private_sum, rounds),
        noise_source="operating system's CSPRNG" if noise_source == "os" else "seeded: simulation only",
        assumptions=(*_assumptions(plan, private_sum, rounds, population, noise_source), *data_assumptions),
        population=population,
        alternatives=tuple(_alternatives(plan, private_sum, event=event, rounds=rounds, delta=delta)),
        disclosure=_disclosure(plan, private_sum, noise_source),
        tpr_at_1_percent_fpr=float(cost.tpr(FPR)),
    )


def _mechanism(private_sum: PrivateSum, rounds: int) -> str:
    z = private_sum.mechanism.noise_multiplier
    if z == 0:
        return f"no noise: {rounds} rounds without any guarantee"
    clip = private_sum.clip
    return f"{rounds} Gaussian sums of contributions {clip.describe()}, noise multiplier {z:.6g}{clip.aside()}"


def _assumptions(plan: "Plan", private_sum: PrivateSum, rounds: int, population: int, noise_source: str) -> list[str]:
    if private_sum.mechanism.noise_multiplier == 0:
        return ["No noise was added: there is no differential privacy guarantee."]
    lines = [
        f"The number of {plan.unit}s, {population}, and everything in plan.json are public (where the true number is "
        "not, a public one can be declared).",
        _person(plan.unit),
        "The model after every round, the ledger and the plan are covered. Metrics, evaluations on private data and "
        "checkpoints are not.",
        "One run is counted. Choosing settings by looking at other runs on the same records costs extra.",
        "Sums and noise are exact up to floating-point rounding.",
    ]
    if isinstance(private_sum.grouping, VirtualClients):
        lines.append(
            "Sampled users are assigned to virtual clients independently and uniformly, and one user can move the "
            "clipped sum by twice the clip norm."
        )
    if rounds < private_sum.rounds:
        lines.append(
            f"The run was stopped after {rounds} of {private_sum.rounds} rounds, and that decision used nothing "
            "private; otherwise the cost of all planned rounds holds."
        )
    if noise_source == "seeded":
        lines.append("Seeded: simulation only. Whoever knows the seed can take the noise away, so nobody is protected.")
    return [*lines, *plan.assumptions()]


def _person(unit: Unit) -> str:
    """Who is covered, where a person may be more than one unit."""
    if unit == "example":
        return (
            "A record is one example of the data set: a person with several examples is covered for each alone, not "
            "for all of them together."
        )
    return "A person is one user of the data set: whoever appears under several users is covered for each alone."


def _disclosure(plan: "Plan", private_sum: PrivateSum, noise_source: str) -> dict[str, str]:
    """Answers that follow from what ran; what only the author of the run knows is left open."""
    if private_sum.mechanism.noise_multiplier == 0:
        return {
            "released": "The model, the ledger and the plan; nothing is covered, as no noise was added.",
            "verification": "That no guarantee is claimed.",
        }
    return {
        "trust_model": "Whoever runs the training sees the records, or each client's contribution, and is trusted: "
        "noise is added to the sum, in one place.",
        "released": "The model after every round, the ledger and the plan; all three are covered. Metrics, evaluations "
        "on private data and the folder checkpoint/ are not, and are marked as not private.",
        "contribution": f"Each contribution is {private_sum.clip.disclose()} in every round that draws the unit, and "
        "counts as zero if it is not finite.",
        "several_units": _several(plan.unit),
        "sampling_as_run": "Yes: the sampler that ran is the object that the cost was derived from.",
        "hyperparameter_tuning": "One run is counted. Whether settings were chosen by other runs on the same records "
        f"is {NOT_STATED}.",
        "evaluation": "What was measured on the training, validation or test records has no noise and is not covered; "
        f"whether it served to choose what is released is {NOT_STATED}.",
        "other_releases": f"None is counted here; whether there are others is {NOT_STATED}.",
        "cryptographic_noise": "Yes: AES-256 under a key from the operating system, deleted when the run ends."
        if noise_source == "os"
        else "No: seeded, for simulation only. Whoever knows the seed can take the noise away.",
        "floating_point": "No: sums and noise are rounded to floating-point numbers, and attacks on their last bits "
        "(Mironov 2012) are not ruled out.",
        "verification": "ledger.jsonl holds every release in a chain of hashes; sfumato ledger verify checks it and "
        "sfumato ledger show accounts it anew. That the code ran as it stands has to be believed.",
    }


def _several(unit: Unit) -> str:
    if unit == "example":
        return f"{_person(unit)} Whether anybody has several examples is {NOT_STATED}."
    return (
        "A person is one user of the data set. Whoever appears under several users is covered for each alone; whether "
        f"that happens is {NOT_STATED}."
    )


def _alternatives(
    plan: "Plan", private_sum: PrivateSum, *, event: Event, rounds: int, delta: float
) -> list[dict[str, Any]]:
    """The same run under other conventions; each with its own numbers."""
    if private_sum.mechanism.noise_multiplier == 0:
        return []
    adjacency = private_sum.sampler.adjacency
    rows: list[dict[str, Any]] = []

    def row(name: str, unit: str, what: Event, method: Any) -> None:
        cost = guarantee(what, adjacency=adjacency, method=method)
        rows.append(
            {
                "name": name,
                "unit": unit,
                "adjacency": adjacency,
                "accountant": cost.tightest(delta),
                "epsilon": cost.epsilon(delta),
                "delta": delta,
            }
        )

    row("this statement, by Rényi accounting", plan.unit, event, "rdp")
    if isinstance(private_sum.grouping, VirtualClients) and isinstance(private_sum.sampler, PoissonSampling):
        client = private_sum.client_event() * rounds
        paper = "the paper's convention: neighbours differ in a whole virtual client (Xu et al. 2022)"
        row(f"{paper}, by Rényi accounting", "virtual_client", client, "rdp")
        row(paper, "virtual_client", client, "auto")
    return rows
