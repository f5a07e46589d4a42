"""DP-SGD with users as units: several examples of a user are one contribution, bounded as a whole."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD, LabelDPPro
from sfumato.central.examples import UserContribution
from sfumato.clipping import Flat
from sfumato.sampling import Cohort
from sfumato.training import Callback, RunOptions
from sfumato.training.contribution import RoundContext
from sfumato.training.table_training import SelectedTables
from slow import one_in, slow_but

ROWS, USERS, NORM = 60, 40, 0.3


class Clicks(nn.Module):
    """Two columns of ids that share a table, and two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, 3)
        self.dense = nn.Linear(8, 2)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.dense(torch.cat([numbers, self.table(ids[:, 0]), self.table(ids[:, 1])], dim=1))


def clicks() -> Clicks:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Clicks()


def log(users: int = USERS, seed: int = 0) -> data.ExampleDataset:
    """A user has between one and about thirty rows; those of a user do not depend on the other users."""
    numbers, ids, targets, owners = [], [], [], []
    for user in range(users):
        rng = np.random.default_rng([seed, user])
        rows = min(int(rng.zipf(1.5)), 30)
        numbers.append(rng.normal(size=(rows, 2)).astype(np.float32))
        ids.append(rng.zipf(1.3, (rows, 2)) % ROWS)
        targets.append(rng.integers(0, 2, rows))
        owners += [user] * rows
    inputs = (np.concatenate(numbers), np.concatenate(ids))
    mixed = np.random.default_rng(1).permutation(len(owners)) if users == USERS else np.arange(len(owners))
    return data.examples_from_arrays(
        tuple(each[mixed] for each in inputs),
        np.concatenate(targets)[mixed],
        num_classes=2,
        users=np.array(owners)[mixed],
    )


def plan(**fields) -> DPSGD:
    usual = {"steps": 6, "cohort": 10, "noise": 1.0, "clipping": NORM, "seed": 1, "examples.per_user": 3}
    return DPSGD(**{**usual, **fields})


def summed(held: data.ExampleDataset, users: np.ndarray, **fields) -> dict[str, torch.Tensor]:
    """The clipped sum of some users, by parameter."""
    contribution = plan(**fields).contribution(clicks(), held, "cpu", 0)
    cohort = Cohort(users, users, np.arange(len(users) + 1))
    theta, bound = contribution.trained.vector.clone(), Flat(norm=NORM)
    share = contribution.clipped_sum(RoundContext(theta, cohort, 1, bound, NORM, RandomSource.from_seed(2)))
    found = dict(zip(contribution.trained.layout.names, share.parts(), strict=False))
    for name, total in share.tables.items():
        rows, values = total.gathered()
        found[name] = torch.zeros(ROWS, 3, dtype=torch.float64).index_add_(0, rows, values)
    return {name: each.double() for name, each in found.items()}


def gradient(held: data.ExampleDataset, rows: np.ndarray) -> dict[str, torch.Tensor]:
    """Of the mean loss of some rows, by autograd."""
    model = clicks()
    (numbers, ids), targets = held.examples(rows)
    loss = nn.functional.cross_entropy(model(torch.tensor(numbers), torch.tensor(ids)), torch.tensor(targets))
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, (each.double() for each in torch.autograd.grad(loss, parameters)), strict=True))


def norm(parts: dict[str, torch.Tensor]) -> float:
    return float(torch.stack([each.square().sum() for each in parts.values()]).sum().sqrt())


@pytest.mark.parametrize(("tables", "micro_batch"), one_in(2, ["dense", "deferred"], [1, 16]))
def test_a_sum_is_that_of_users_whose_mean_gradients_are_clipped(tables: str, micro_batch: int) -> None:
    held, users = log(), np.arange(0, USERS, 2)
    fields = {"examples.per_user": 30, "tables": tables, "examples.micro_batch": micro_batch}
    found = summed(held, users, **fields)
    expected = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in clicks().named_parameters()}
    for user in users:
        mine = gradient(held, np.flatnonzero(held.owners == user))
        for name, each in mine.items():
            expected[name] += each * min(1.0, NORM / norm(mine))
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, rtol=1e-3, atol=1e-6)


def test_a_bound_that_no_user_reaches_costs_no_passes_of_the_model() -> None:
    held, users = log(), np.arange(0, USERS, 2)
    found, exact = (summed(held, users, **{"examples.per_user": most}) for most in (10**9, 30))
    assert all(torch.equal(found[name], each) for name, each in exact.items())


def test_a_user_moves_the_sum_by_the_norm_at_most_however_many_rows_they_have() -> None:
    small = log(USERS - 1)
    many = 500
    rng = np.random.default_rng(5)
    inputs = tuple(
        np.concatenate([each[:], more])
        for each, more in zip(
            small.inputs,
            (1e4 * rng.normal(size=(many, 2)).astype(np.float32), rng.integers(0, ROWS, (many, 2))),
            strict=True,
        )
    )
    owners = np.concatenate([small.owners, [USERS - 1] * many])
    targets = np.concatenate([small.targets, rng.integers(0, 2, many)])
    large = data.examples_from_arrays(inputs, targets, num_classes=2, users=owners)
    others = np.arange(USERS - 1)
    without, absent = summed(small, others), summed(large, others)
    for name, each in without.items():
        torch.testing.assert_close(absent[name], each, rtol=1e-6, atol=1e-9)  # who is not drawn leaves no trace
    present = summed(large, np.arange(USERS))
    moved = norm({name: present[name] - without[name] for name in present})
    assert 0.99 * NORM < moved <= NORM * (1 + 1e-6)


@pytest.mark.parametrize("count_norm", [0.5, 2.0])
def test_a_user_moves_the_counts_by_their_own_rows_and_the_norm_at_most(count_norm: float) -> None:
    held, most = log(), 2
    contribution = plan(tables=SelectedTables(count_norm=count_norm), **{"examples.per_user": most}).contribution(
        clicks(), held, "cpu", 0
    )

    def counts(users: np.ndarray) -> torch.Tensor:
        cohort = Cohort(users, users, np.arange(len(users) + 1))
        theta, source = contribution.trained.vector.clone(), RandomSource.from_seed(2)
        share = contribution.clipped_sum(RoundContext(theta, cohort, 1, Flat(norm=NORM), NORM, source))
        assert share.counts is not None
        (total,) = share.counts.sums.values()
        rows, values = total.gathered()
        return torch.zeros(ROWS, dtype=torch.float64).index_add_(0, rows, values[:, 0])

    everyone = np.arange(USERS)
    whole = counts(everyone)
    for user in everyone[::3]:
        moved = whole - counts(np.setdiff1d(everyone, [user]))
        mine = held.inputs[1][:][held.owners == user]
        changed = torch.nonzero(moved.abs() > 1e-9).flatten().tolist()
        assert set(changed) <= set(mine.ravel().tolist())
        assert len(mine) > most or len(changed) == len(set(mine.ravel().tolist()))
        assert len(changed) <= most * mine.shape[1]
        assert float(moved.norm()) <= count_norm * (1 + 1e-9)
        assert float(moved.norm()) == pytest.approx(min(count_norm, len(changed) ** 0.5), rel=1e-3)


@pytest.mark.parametrize("tables", slow_but(["deferred", "adafest"], "adafest"))
def test_without_noise_tables_train_as_in_the_dense_run(tables: str) -> None:
    dense, rows = (
        plan(noise=0.0, server=0.5, tables=each).fit(clicks(), log()).model.state_dict() for each in ("dense", tables)
    )
    for name, each in dense.items():
        torch.testing.assert_close(rows[name], each, rtol=1e-5, atol=1e-6)


def test_one_wild_row_counts_its_user_as_zero_and_no_other() -> None:
    held = log()
    numbers = held.inputs[0][:].copy()
    numbers[np.flatnonzero(held.owners == 7)[0]] = np.nan
    wild = data.examples_from_arrays((numbers, held.inputs[1][:]), held.targets, num_classes=2, users=held.owners)
    fields = {"examples.per_user": 30}
    found, others = summed(wild, np.arange(USERS), **fields), summed(held, np.delete(np.arange(USERS), 7), **fields)
    for name, each in others.items():
        torch.testing.assert_close(found[name], each, rtol=1e-5, atol=1e-7)


def contribution(held: data.ExampleDataset, **fields) -> UserContribution:
    found = plan(**fields).contribution(clicks(), held, "cpu", 0)
    assert isinstance(found, UserContribution)
    return found


def test_rows_are_chosen_uniformly_from_the_user_alone_and_anew_in_each_step() -> None:
    held = log()
    made, sizes = contribution(held), np.bincount(held.owners)
    assert sizes.max() > 3 > sizes.min()
    user = int(sizes.argmax())
    drawn = np.zeros(len(held))
    for key in range(3000):
        places, counts = made.chosen(np.array([2, user]), key)
        assert (held.owners[places] == np.array([[2], [user]])).all()
        mine = places[1][counts[1]]
        assert len(np.unique(mine)) == 3
        assert (np.sort(places[0][counts[0]]) == np.flatnonzero(held.owners == 2)[: counts[0].sum()]).all() or sizes[
            2
        ] > 3
        drawn[mine] += 1
    of_user = drawn[held.owners == user]
    share = 3 / len(of_user)
    assert np.abs(of_user - 3000 * share).max() < 5 * np.sqrt(3000 * share * (1 - share))
    alone, _ = made.chosen(np.array([user]), 17)
    among, _ = made.chosen(np.arange(USERS), 17)
    assert (alone[0] == among[user]).all()


def test_the_statement_has_users_as_units_and_names_the_bound(tmp_path) -> None:
    held = log()
    made = plan(noise=None).calibrate(epsilon=8.0, delta=1e-3, population=USERS)
    found = made.fit(clicks(), held, test=log(seed=1), out=tmp_path / "run")
    statement = found.statement
    assert (statement.unit, statement.population) == ("user", USERS)
    assert statement.epsilon <= 8.0
    said = " ".join(statement.text().split())
    assert "Of more than 3 rows, 3 are chosen at random in each step." in said
    assert "each example is covered alone" not in said
    alone = made.replace(**{"examples.per_user": None})  # as many examples that stand alone cost the same
    assert alone.private_sum(USERS).event(6) == made.private_sum(USERS).event(6)


def test_users_who_are_covered_for_each_row_alone_are_named(tmp_path) -> None:
    held = log()
    found = plan(**{"examples.per_user": None}).fit(clicks(), held)
    assert found.statement.unit == "example"
    assert found.statement.population == len(held)
    said = " ".join(found.statement.text().split())
    assert "A user with several examples is covered for each of them, not for all together." in said


class Dies(Callback):
    """Ends the process's work after a round."""

    def on_round(self, row: dict) -> None:
        """Fail in the fourth."""
        if row["round"] == 4:
            raise RuntimeError("killed")


@pytest.mark.parametrize("tables", slow_but(["dense", "deferred"], "deferred"))
def test_killed_and_resumed_it_is_byte_identical(tables: str, tmp_path) -> None:
    run, held = plan(tables=tables), log()
    for name in ("whole", "killed"):
        options = RunOptions(checkpoint_every=2, callbacks=[Dies()] if name == "killed" else [])
        try:
            run.fit(clicks(), held, out=tmp_path / name, options=options)
        except RuntimeError:
            run.fit(clicks(), held, out=tmp_path / name, resume=True, options=RunOptions(checkpoint_every=2))
    whole, killed = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert whole == killed


def test_what_has_no_users_or_another_unit_is_refused() -> None:
    alone = data.examples_from_arrays(np.zeros((9, 2), np.float32), [0, 1, 0] * 3, num_classes=2)
    with pytest.raises(InputError, match="the examples have no users; declare a column as user"):
        plan().fit(nn.Linear(2, 2), alone)
    one = data.examples_from_arrays(np.zeros((9, 2), np.float32), [0, 1, 0] * 3, num_classes=2, users=[5] * 9)
    with pytest.raises(InputError, match="has one user"):
        plan().fit(nn.Linear(2, 2), one)
    with pytest.raises(InputError, match="makes users the unit, and labeldp_pro hides a label"):
        LabelDPPro(**{"examples.per_user": 3})
    with pytest.raises(InputError, match="use augmentation=none"):
        plan(**{"examples.augmentation": "flip"})
    with pytest.raises(InputError, match="per_user must be a whole number >= 1, got 0"):
        plan(**{"examples.per_user": 0})
