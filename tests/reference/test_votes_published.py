"""Published figures of noisy votes.

Papernot et al. 2018 (arXiv 1802.08908): tensorflow/privacy, research/pate_2018, core.py and the test of
smooth_sensitivity.py. Values from core.py were computed with its long list of orders and the classic conversion.
"""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from sfumato.accounting.accountants import rdp
from sfumato.accounting.events.votes import NoisyVote
from sfumato.accounting.votes import VoteSensitivity, to_epsilon, vote_cost

TABLE = Path(__file__).parents[3] / "shared" / "references" / "accounting.csv"
ORDERS = tuple(np.concatenate([np.arange(2, 101, 0.5), np.logspace(2, np.log10(500), 100)]).tolist())


def epsilon(counts, bound):
    votes = np.tile(np.array(counts, dtype=float), (1000, 1))
    cost = vote_cost(votes, NoisyVote(40.0), "replace", orders=ORDERS, bound=bound)
    return cost.epsilon(1e-5, "classic").value


@pytest.mark.parametrize(
    ("counts", "published"),
    [
        ([250] + [0] * 9, 0.5523),
        ([225, 25] + [0] * 8, 1.0047813704018844),
        ([200, 50] + [0] * 8, 2.9919107697363456),
    ],
)
def test_gnmax_data_dependent(counts, published):
    digits = len(str(published).split(".")[1])
    assert round(epsilon(counts, "theorem6"), min(digits, 10)) == round(published, min(digits, 10))
    assert epsilon(counts, "best") < published


@pytest.mark.shared
@pytest.mark.skipif(not TABLE.exists(), reason="needs ../shared/references")
def test_every_row_of_the_table_that_names_gnmax():
    rows = [row for row in csv.DictReader(TABLE.open()) if row["mechanism"].startswith("GNMax")]
    assert len(rows) == 2
    for row in rows:
        first, second = re.search(r"\[(\d+),(\d+),0x8\]", row["params"]).groups()  # pyright: ignore
        assert epsilon([int(first), int(second)] + [0] * 8, "theorem6") == pytest.approx(
            float(row["epsilon"]), rel=1e-12
        )


def test_gnmax_data_independent():
    orders = ORDERS
    curve = 1000 * rdp(NoisyVote(40.0), "replace", orders)
    assert round(to_epsilon(curve, np.array(orders), 1e-5, "classic"), 4) == 5.9959


def test_local_sensitivity_going_right():
    # The published list goes on with its plateau from distance 3; there the authors stop using Theorem 6 where it
    # still holds, so their cost jumps and ours does not.
    published = np.array([3.13503646e-17, 1.60178280e-08, 5.90681786e-03])
    sensitivity = VoteSensitivity(NoisyVote(0.5), "replace", classes=3, order=1.5, bound="theorem6")
    ours = sensitivity.local([[10, 0, 0]], 10)
    assert (ours[:3] >= published).all()
    assert (ours[:3] <= 1.06 * published).all()
    assert (ours[3:] <= 5.99981308).all()


def test_local_sensitivity_going_left():
    published = np.array([2.77693450548e-7, 2.10853979548e-6, 2.73113623988e-6])
    sensitivity = VoteSensitivity(NoisyVote(250.0), "replace", classes=5, order=10.0, bound="theorem6")
    ours = sensitivity.local([[1000, 500, 300, 200, 0]], 2000)
    assert (ours[:298] == 0).all()
    assert (ours[298:301] >= published).all()
    assert (ours[298:] <= np.array([1.2 * published[0], 1.02 * published[1]] + [1.03 * published[2]] * 1700)).all()
