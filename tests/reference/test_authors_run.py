"""What the authors' EMNIST run costs: the table in recipes/fedemb_emnist/README.md, from the default plan."""

from pathlib import Path

import pytest

from sfumato import accounting as acc
from sfumato.federated import FedEmb

README = Path(__file__).resolve().parents[2] / "recipes" / "fedemb_emnist" / "README.md"
TABLE = [(3400, 20.03, 17.57, 104.9), (6800, 11.30, 9.67, 64.2)]


@pytest.mark.parametrize(("population", "renyi", "exact", "one_user"), TABLE)
def test_the_cost_of_the_authors_run(population, renyi, exact, one_user):
    private_sum = FedEmb(noise_multiplier=0.62).private_sum(population)
    delta = population**-1.1
    client, user = private_sum.contributor_event(200), private_sum.event(200)
    assert acc.guarantee(client, method="rdp").epsilon(delta) == pytest.approx(renyi, abs=0.006)
    assert acc.guarantee(client, method="pld").epsilon(delta) == pytest.approx(exact, abs=0.006)
    assert acc.guarantee(user, method="pld").epsilon(delta) == pytest.approx(one_user, abs=0.06)
    row = f"| {population:,} | {renyi:.2f} | {exact:.2f} | {one_user:.1f} |"
    assert row in README.read_text()
