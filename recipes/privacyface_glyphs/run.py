"""PrivacyFace on four clients of 7,000 generated identities each: how near released clusters are to exact ones.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT]

Fails if no private cluster is released at ε = 1, or if there the mean cosine of a client's clusters and those without
noise, over 20 releases, is not within .03 of the predicted one. trained.py shows what a backbone gains from clusters.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import clients
import numpy as np
from clients import CLIENTS, FULL, PUBLIC, QUICK

from sfumato._files import read_json, write_json
from sfumato._random import RandomSource
from sfumato.federated.clustering import DPLC, expected_cosine, principal_directions, public_directions

FOLDER = Path(__file__).resolve().parent
RELEASES = "releases"
RUNS, NEAR, CHECKED = 20, 0.03, 1.0
"""Releases of each client and setting, for each seed; how near to the prediction they must be, and at which ε."""

DIMENSIONS, GROUPS = 32, 16
PLAN = DPLC(epsilon=CHECKED, radius=1.3, threshold=512)
"""ρ, T and ε of the paper."""

EPSILONS, RADII = (0.1, 0.3, 1.0, 3.0), (1.2, 1.3, 1.4)
QUICK_IDENTITIES = 35  # times fewer
MEASURED = {
    "released": "clusters that reach the threshold",
    "cosine": "cosine of p and p̂, in the noise's dimensions",
    "predicted": "predicted cosine, by the size of the cap and the length of its mean",
    "foreseen": "cosine that the public identities foresee",
}


def settings(quick: bool) -> dict[str, tuple[DPLC, int]]:
    """Plans and the dimensions of the noise, by title: one of ρ, ε and the dimensions is varied at a time."""
    plans = [(replace(PLAN, radius=radius), DIMENSIONS) for radius in RADII]
    plans += [(replace(PLAN, epsilon=epsilon), DIMENSIONS) for epsilon in EPSILONS]
    plans += [(replace(PLAN, epsilon=epsilon), clients.DIMENSIONS) for epsilon in EPSILONS]
    named = {f"ρ = {plan.radius:g}, ε = {plan.epsilon:g}, {wide} dimensions": (plan, wide) for plan, wide in plans}
    if not quick:
        return named
    return {title: (_smaller(plan), wide) for title, (plan, wide) in named.items()}


def _smaller(plan: DPLC) -> DPLC:
    few = max(1, plan.threshold // QUICK_IDENTITIES)
    return replace(plan, threshold=few, epsilon=QUICK_IDENTITIES * plan.epsilon)


def cell(_: str, seed: int, run: Path, quick: bool, __: Path | None) -> None:
    """All releases of all clients with one seed; the network is the same for all seeds."""
    if (run / "measured.json").exists():
        return
    run.mkdir(parents=True, exist_ok=True)
    size = QUICK if quick else FULL
    model = clients.started(0, size)
    public = clients.centres(model, clients.users(PUBLIC, size))
    candidates = public_directions(public, GROUPS)
    projections = {wide: principal_directions(public, wide) for wide in {wide for _, wide in settings(quick).values()}}
    found: dict[str, Any] = {}
    for name in CLIENTS:
        centres, source = clients.centres(model, clients.users(name, size)), RandomSource.from_seed(seed).within(name)
        found[name] = {"delta": len(centres) ** -1.1}
        for title, (plan, wide) in settings(quick).items():
            plan = replace(plan, delta=found[name]["delta"])
            found[name][title] = released(plan, centres, public, candidates, projections[wide], source.within(title))
    write_json(run / "measured.json", found)


def released(
    plan: DPLC,
    centres: np.ndarray,
    public: np.ndarray,
    candidates: np.ndarray,
    back: np.ndarray,
    source: RandomSource,
) -> dict[str, float | None]:
    """Mean figures over `RUNS` releases; None where no cluster is usable.

    Args:
        plan: of each; one cluster is released.
        centres, public: float [n, d], of the client and of public identities.
        candidates: float [candidates, d].
        back: the projection, float [d, dimensions of the noise].
        source: of the releases.
    """
    inner, known, around = (_unit(rows @ back) for rows in (centres, public, candidates))
    limit, noise = math.cos(plan.radius), plan.noise_multiplier(len(centres))
    shares = (known @ around.T >= limit).mean(axis=0)
    densest = int(shares.argmax())
    mean = known[known @ around[densest] >= limit].mean(axis=0)
    foreseen = expected_cosine(shares[densest] * len(centres), float(np.linalg.norm(mean)), len(mean), noise)
    cosines, predicted = [], []
    for number in range(RUNS):
        seed = source.seed64("release", number) >> 1
        [cluster] = replace(plan, seed=seed).release(centres, candidates, projection=back).clusters
        if cluster.usable:
            cap = inner[inner @ around[cluster.candidate] >= limit]
            exact, length = cap.mean(axis=0), float(np.linalg.norm(cap.mean(axis=0)))
            direction = cluster.direction @ back
            cosines.append(float(direction @ exact / (np.linalg.norm(direction) * length)))
            predicted.append(expected_cosine(len(cap), length, len(exact), noise))
    return {
        "released": len(cosines) / RUNS,
        "cosine": float(np.mean(cosines)) if cosines else None,
        "predicted": float(np.mean(predicted)) if cosines else None,
        "foreseen": foreseen,
    }


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """A row for each figure, setting and client, after the check at ε = 1."""
    runs = [read_json(place(RELEASES, seed) / "measured.json") for seed in range(seeds)]
    found = {name: [run[name] for run in runs] for name in CLIENTS}
    check(found, [title for title, (plan, _) in settings(False).items() if plan.epsilon == CHECKED])
    rows = []
    for key, metric in MEASURED.items():
        for title, (plan, _) in settings(quick).items():
            for name in CLIENTS:
                values = [each[title][key] for each in found[name] if each[title][key] is not None]
                if values:
                    rows.append(
                        {
                            "method": title,
                            "dataset": "four clients of generated identities",
                            "metric": metric,
                            "measure": name,
                            **cells.mean_and_std(values),
                            "seeds": len(values),
                            "epsilon": plan.epsilon,
                            "delta": float(f"{found[name][0]['delta']:.3g}"),
                            "unit": "identity",
                            "paper": None,
                        }
                    )
    return rows


def check(found: dict[str, list[dict[str, Any]]], titles: list[str]) -> None:
    """Fail where a client's releases are not as near to those without noise as predicted, or there are none."""
    measured = [(name, title, each[title]) for name in found for title in titles for each in found[name]]
    there = [(name, title, each) for name, title, each in measured if each["cosine"] is not None]
    if not there:
        sys.exit("no private cluster was released at epsilon 1: take a larger radius or a lower threshold")
    for name, title, each in there:
        if abs(each["cosine"] - each["predicted"]) > NEAR:
            sys.exit(
                f"{name}, {title}: a mean cosine of {each['cosine']:.3f} over {RUNS} releases, and "
                f"{each['predicted']:.3f} is predicted; they must be within {NEAR:g}"
            )


def main() -> None:
    """Run the table."""
    cells.main(FOLDER, [RELEASES], cell, table)


if __name__ == "__main__":
    main()
