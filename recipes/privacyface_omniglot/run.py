"""PrivacyFace on Omniglot: four groups of alphabets, each of which a client holds.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data FOLDER]

It writes results.json and accuracy.svg. --data is the folder of shared data; it is read, never copied. Fails if no
private cluster was released.
"""

import hashlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from cells import SHARED
from privacyface_recipe import CONTROL, INSIDE_TITLE, People, Recipe, Row, begun, by_name, main, methods, rows
from torch import nn

from sfumato.data import UserDataset, from_arrays, glyphs, open_users

FOLDER = Path(__file__).resolve().parent
GROUPS = ("A", "B", "C", "D")
TEST_SHARE = 30
"""Of 100 characters of a client, by a hash of their names, no one trains on so many."""

EPSILON, RADIUS = 2.0, 1.3
CLUSTERS: dict[str, Any] = {"radius": RADIUS, "threshold": 20, "groups": 16, "dimensions": 16}
PRIVATE = {
    "rounds": 10,
    "cohort": {"size": 20, "users_per_client": 4},
    "clipping": {"norm": 0.3},
    "noise": 1.0,  # before it is calibrated
    "server": {"learning_rate": 0.1},
}
"""A backbone that is trained under noise."""

JOINT: dict[str, Any] = {"scheme": "fedsgd", "steps": 80}
"""Joint steps: 80 batches are about a pass over a client."""

TURNS = 4
EPOCHS = {"strong": 20, "weak": 8}
START = "weak"


def _rows() -> dict[str, Row]:
    found = rows(CLUSTERS, EPSILON, GROUPS, PRIVATE, epsilons=(0.5, 1.0, 4.0, 8.0), radii=(1.2, 1.4, 1.5))
    noisy = f"+ p̂, ε = {EPSILON:g}"
    plans = methods(CLUSTERS, EPSILON, GROUPS)
    joint, control = [], f"joint steps: {CONTROL.replace('Avg', 'SGD')}"
    for name in (CONTROL, noisy, f"{noisy}{INSIDE_TITLE}", "+ p", f"+ p{INSIDE_TITLE}"):
        title = control if name == CONTROL else f"joint steps: {name}"
        joint.append(Row(start=START, method=title, plan={**(plans[name] or {}), **JOINT}, control=control))
    return {**found, **by_name(joint)}


@cache
def people(folder: Path | None, quick: bool) -> People:
    """The clients' characters in two parts, and the public ones: every fifth alphabet, by its place in the list."""
    characters = open_users((folder or SHARED) / "omniglot_background.npz")
    alphabet_of = characters.label_groups
    assert alphabet_of is not None
    alphabets = [alphabet_of[characters.examples(user)[1][0]] for user in range(len(characters))]
    at = np.array([characters.groups.index(alphabet) for alphabet in alphabets]) % (len(GROUPS) + 1)
    held = np.array([_draw(str(name)) % 100 < TEST_SHARE for name in characters.user_ids])

    def part(chosen: np.ndarray) -> UserDataset:
        places = np.flatnonzero(chosen)[:: 4 if quick else 1]
        pictures, _, counts = characters.examples_of(places)
        names = np.repeat([str(characters.user_ids[place]) for place in places], counts)
        return from_arrays(255 - np.asarray(pictures), names, names)  # ink is light, as in glyphs

    return People(
        silos={name: part((at == number) & ~held) for number, name in enumerate(GROUPS, 1)},
        public=part(at == 0),
        unseen={name: part((at == number) & held) for number, name in enumerate(GROUPS, 1)},
    )


def _draw(name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"unseen {name}".encode()).digest()[:8])


def turned(users: UserDataset) -> UserDataset:
    """Each character as four, by quarter turns."""
    pictures, _, counts = users.examples_of(np.arange(len(users)))
    names = np.repeat([str(name) for name in users.user_ids], counts)
    rows = np.concatenate([np.rot90(pictures, turn, axes=(1, 2)) for turn in range(TURNS)])
    owners = np.concatenate([np.char.add(names, f", turned {turn}") for turn in range(TURNS)])
    return from_arrays(np.ascontiguousarray(rows), owners, owners)


def started(row: Row, seed: int, folder: Path | None, quick: bool) -> nn.Module:
    """A network that the public alphabets have trained (strong), or drawn glyphs have (weak)."""
    public = people(folder, quick).public
    if row.start == "strong":
        return begun(turned(public), seed, 1 if quick else EPOCHS[row.start], centred=public)
    drawn = glyphs(identities=20, images_per_identity=5) if quick else glyphs()
    return begun(drawn, seed, 1 if quick else EPOCHS[row.start], centred=public)


RECIPE = Recipe(
    folder=FOLDER,
    dataset="four groups of Omniglot's alphabets",
    rows=_rows(),
    people=people,
    started=started,
    settings={start: {"rounds": 10, "client.learning_rate": 0.02, "client.batch_size": 32} for start in EPOCHS},
    quick={"rounds": 1, "cohort": {"size": 4, "users_per_client": 4}, "steps": 3, "sharing.threshold": 4},
    base={"ε": EPSILON, "ρ": RADIUS},
)

if __name__ == "__main__":
    main(RECIPE)
