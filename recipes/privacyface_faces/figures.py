"""The paper's figures that need only centres: how near p̂ is to p, and who is found behind w, p and p̂.

- `cosines`: the cosine of a cluster without noise (p) and as released (p̂), over ρ, ε and the number of clusters Q.
- `identification`: nearest-neighbour identification from class centres (w), from p and from p̂, with three pictures of
  each identity that are in no centre; the three most similar identities are guessed. What is not usable is attacked,
  too: it was released.
- `inversion`: a decoder that public pictures trained makes pictures of w, p and p̂; these are embedded, and identified.

Each function measures one seed and returns plain numbers; run.py makes rows of them.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import clients
import numpy as np
from clients import CLIENTS, PUBLIC, Client
from PIL import Image

from sfumato.audit.identification import identification_rate
from sfumato.audit.inversion import Inversion, invert
from sfumato.federated.clustering import DPLC, Clustering, principal_directions, public_directions
from sfumato.report.plots import pictures_figure

DIMENSIONS, GROUPS = 32, 16
PLAN = DPLC(epsilon=2.0, radius=1.4, threshold=100)
"""What the trial with these faces recommends; δ is n^−1.1, as in the paper."""

EPSILONS, RADII, RELEASES = (0.5, 1.0, 2.0, 4.0, 8.0), (1.2, 1.3, 1.4, 1.5), (1, 2, 5)
ATTACKED = (0.1, 1.0, 10.0)
"""Budgets at which clusters are attacked."""

_SIDE = 64  # of inverted pictures
_SHOWN = 4
QUICK = 6  # times fewer identities, and so a smaller threshold and a larger budget


@dataclass(frozen=True, kw_only=True)
class Released:
    """What a client released, and the same without noise.

    Attributes:
        result: of the release.
        exact: the normalised means of the caps' centres, float [clusters, 128].
        members: of each cap, numbers of identities.
    """

    result: Clustering
    exact: np.ndarray
    members: list[np.ndarray]


@cache
def public_parts(folder: Path | None, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Candidates, and the projection, of the public people."""
    public = clients.clients(folder, quick)[PUBLIC].centres
    return public_directions(public, GROUPS), principal_directions(public, DIMENSIONS)


def settings(quick: bool) -> dict[str, DPLC]:
    """The plans of the first figure, by title: one of ρ, ε and Q is varied at a time."""
    plans = [
        *(replace(PLAN, radius=radius) for radius in RADII),
        *(replace(PLAN, epsilon=epsilon) for epsilon in EPSILONS),
        *(replace(PLAN, releases=releases) for releases in RELEASES),
    ]
    named = {f"ρ = {plan.radius:g}, ε = {plan.epsilon:g}, Q = {plan.releases}": plan for plan in plans}
    return {title: _smaller(plan) if quick else plan for title, plan in named.items()}


def noisy(epsilon: float) -> str:
    """What rows call clusters at a budget."""
    return f"p̂, ε = {epsilon:g}"


def exact(epsilon: float) -> str:
    """What rows call the same caps' means without noise, where the caps were chosen at a budget."""
    return f"p, caps chosen at ε = {epsilon:g}"


def budget(epsilon: float, quick: bool) -> float:
    """The ε that is spent where rows are named after this one."""
    return QUICK * epsilon if quick else epsilon


def _smaller(plan: DPLC) -> DPLC:
    return replace(plan, epsilon=budget(plan.epsilon, quick=True), threshold=plan.threshold // QUICK)


def cosines(seed: int, runs: int, quick: bool, folder: Path | None) -> dict[str, Any]:
    """For each setting and client: the share of clusters that are usable, and the mean cosine of these with p, in the
    dimensions of the noise and in all; a number is None where no cluster is usable."""
    found: dict[str, Any] = {}
    back = public_parts(folder, quick)[1]
    for title, plan in settings(quick).items():
        found[title] = {}
        for name in CLIENTS:
            usable, inner, whole = 0, [], []
            client = clients.clients(folder, quick)[name]
            for run in range(runs):
                released = release(client, plan, seed * runs + run, folder, quick)
                for cluster, exact in zip(released.result.clusters, released.exact, strict=True):
                    if cluster.usable:
                        usable += 1
                        whole.append(_cosine(cluster.direction, exact))
                        inner.append(_cosine(cluster.direction @ back, exact @ back))
            found[title][name] = {
                "released": usable / (runs * plan.releases),
                "cosine": float(np.mean(inner)) if usable else None,
                "whole": float(np.mean(whole)) if usable else None,
                "delta": _delta(client),
            }
    return found


def identification(seed: int, runs: int, quick: bool, folder: Path | None) -> dict[str, Any]:
    """For each client: the share of identities found behind w, and behind p and p̂ at each budget; and by chance.

    A share is None where no cap holds anyone of whom the attacker has pictures.
    """
    found: dict[str, Any] = {}
    for name in CLIENTS:
        client = clients.clients(folder, quick)[name]
        gallery, owners = client.embeddings[client.gallery], client.owners[client.gallery]
        known = client.known
        alone = [known[[at]] for at in range(len(known))]
        rates: dict[str, list[float | None]] = {"w": [_rate(client.centres[known], alone, gallery, owners)]}
        for epsilon in ATTACKED:
            plan = replace(PLAN, epsilon=epsilon)
            for run in range(runs):
                released = release(client, _smaller(plan) if quick else plan, seed * runs + run, folder, quick)
                members = [np.intersect1d(each, known) for each in released.members]
                directions = np.stack([cluster.direction for cluster in released.result.clusters])
                rates.setdefault(exact(epsilon), []).append(_rate(released.exact, members, gallery, owners))
                rates.setdefault(noisy(epsilon), []).append(_rate(directions, members, gallery, owners))
        found[name] = {
            "rates": {kind: _mean(each) for kind, each in rates.items()},
            "chance": 3 / len(known),
            "known": len(known),
            "delta": _delta(client),
        }
    return found


def inversion(seed: int, quick: bool, folder: Path | None, out: Path) -> dict[str, Any]:
    """For each client: the share of identities that are found behind the pictures a decoder makes of w, p, and p̂.

    Writes inverted.png into `out`. It is private: it holds pictures made of class centres.
    """
    everyone = clients.clients(folder, quick)
    public = everyone[PUBLIC]
    plan = Inversion(epochs=2 if quick else 50, seed=seed)
    decoder, _ = plan.fit(public.embeddings, _sized(clients.pictures(public.rows, folder, quick), _SIDE))
    found: dict[str, Any] = {}
    shown: dict[str, list[np.ndarray]] = {"pictures": [], "w": [], exact(1.0): [], noisy(1.0): []}
    for name in CLIENTS:
        client = everyone[name]
        gallery, owners = client.embeddings[client.gallery], client.owners[client.gallery]
        known = client.known[: 20 if quick else None]
        plan = replace(PLAN, epsilon=1.0)
        released = release(client, _smaller(plan) if quick else plan, seed, folder, quick)
        members = [np.intersect1d(each, client.known) for each in released.members]
        directions = np.stack([cluster.direction for cluster in released.result.clusters])
        parts = {
            "w": (client.centres[known], [known[[at]] for at in range(len(known))]),
            exact(1.0): (released.exact, members),
            noisy(1.0): (directions, members),
        }
        rates = {}
        for kind, (vectors, behind) in parts.items():
            made = invert(decoder, vectors)
            rates[kind] = _rate(clients.embed(_sized(made, 112), folder), behind, gallery, owners)
            shown[kind].append(made[0])
        shown["pictures"].append(
            _sized(clients.pictures(client.rows[client.owners == known[0]][:1], folder, quick), _SIDE)[0]
        )
        found[name] = {"rates": rates, "chance": 3 / len(client.known), "delta": _delta(client)}
    pictures_figure({kind: np.stack(images) for kind, images in shown.items()}, out / "inverted.png")
    return found


def release(client: Client, plan: DPLC, seed: int, folder: Path | None, quick: bool) -> Released:
    """One release of a client, next to what it would be without noise; each client has random numbers of its own."""
    candidates, back = public_parts(folder, quick)
    centres = _centres(client)
    plan = replace(plan, seed=clients.draw(f"release {seed}", client.name), delta=_delta(client))
    result = plan.release(centres, candidates, projection=back)
    inner = _unit(centres @ back)
    left, exact, members = np.ones(len(centres), bool), [], []
    for cluster in result.clusters:
        inside = left & (inner @ _unit(candidates[[cluster.candidate]] @ back)[0] >= math.cos(plan.radius))
        exact.append(centres[inside].sum(axis=0) if inside.any() else cluster.direction)
        members.append(np.flatnonzero(inside))
        if cluster.usable:
            left &= inner @ (cluster.direction @ back) < math.cos(plan.radius)
    return Released(result=result, exact=_unit(np.stack(exact)), members=members)


def _rate(vectors: np.ndarray, members: list[np.ndarray], gallery: np.ndarray, owners: np.ndarray) -> float | None:
    """The share of identities found; None where no one is behind any vector."""
    return identification_rate(vectors, members, gallery, owners) if any(map(len, members)) else None


def _mean(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


@cache
def _centres(client: Client) -> np.ndarray:
    return client.centres


def _delta(client: Client) -> float:
    return len(client.identities) ** -1.1


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _sized(images: np.ndarray, side: int) -> np.ndarray:
    return np.stack([np.asarray(Image.fromarray(image).resize((side, side))) for image in images])
