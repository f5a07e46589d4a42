"""From a run to its statement: what was promised to whom, under which assumptions."""

from typing import TYPE_CHECKING, Any

from sfumato.accounting import Event, Statement, guarantee
from sfumato.clipping import AdaptiveClipNorm
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
) -> Statement:
    """The statement of the rounds that ran.

    Args:
        plan: the plan that ran.
        private_sum: its parts.
        event: everything that was released, from the ledger; for one user.
        rounds: rounds that ran.
        population: public number of users.
        delta: δ.
        noise_source: "os" or "seeded".
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
        assumptions=tuple(_assumptions(plan, private_sum, rounds, population, noise_source)),
        population=population,
        alternatives=tuple(_alternatives(private_sum, event=event, rounds=rounds, delta=delta)),
    )


def _mechanism(private_sum: PrivateSum, rounds: int) -> str:
    z = private_sum.mechanism.noise_multiplier
    if z == 0:
        return f"no noise: {rounds} rounds without any guarantee"
    clip = private_sum.clip
    bound = "an adaptive norm" if isinstance(clip, AdaptiveClipNorm) else f"norm {clip.clip_norm:g}"
    count = ", with a noisy count for the norm" if isinstance(clip, AdaptiveClipNorm) else ""
    return f"{rounds} Gaussian sums of contributions clipped to {bound}, noise multiplier {z:.6g}{count}"


def _assumptions(plan: "Plan", private_sum: PrivateSum, rounds: int, population: int, noise_source: str) -> list[str]:
    if private_sum.mechanism.noise_multiplier == 0:
        return ["No noise was added: there is no differential privacy guarantee."]
    lines = [
        f"The number of users, {population}, and everything in plan.json are public (where the true number is not, a "
        "public one can be declared).",
        "A person is one user of the data set: whoever appears under several users is covered for each alone.",
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
    if rounds < plan.rounds:
        lines.append(
            f"The run was stopped after {rounds} of {plan.rounds} rounds, and that decision used nothing private; "
            "otherwise the cost of all planned rounds holds."
        )
    if noise_source == "seeded":
        lines.append("Seeded: simulation only. Whoever knows the seed can take the noise away, so nobody is protected.")
    return [*lines, *plan.assumptions()]


def _alternatives(private_sum: PrivateSum, *, event: Event, rounds: int, delta: float) -> list[dict[str, Any]]:
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

    row("this statement, by Rényi accounting", "user", event, "rdp")
    if isinstance(private_sum.grouping, VirtualClients) and isinstance(private_sum.sampler, PoissonSampling):
        client = private_sum.client_event() * rounds
        paper = "the paper's convention: neighbours differ in a whole virtual client (Xu et al. 2022)"
        row(f"{paper}, by Rényi accounting", "virtual_client", client, "rdp")
        row(paper, "virtual_client", client, "auto")
    return rows
