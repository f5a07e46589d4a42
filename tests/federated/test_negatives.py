"""Items that were not chosen: drawn from what is public, for each client by itself, also behind frozen features."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fitting import fit_plan
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated import FedAvg, FedEmb
from sfumato.federated.client import gather
from sfumato.federated.negatives import PublicNegatives
from sfumato.sampling import Cohort
from sfumato.training import Callback, RoundContext, RunOptions, Stop
from slow import by_profile

# Public negatives: what a client gets follows from its slot and its own records, and one person moves the sum by C.

SOURCE = RandomSource.from_seed(3)
LOCAL = {
    "client.learning_rate": 0.5,
    "client.epochs": 2,
    "client.batch_size": 3,
    "noise.noise_multiplier": 1.0,
    "cohort.size": 3,
}


def people(sizes: list[int], seed: int = 0, scale: float = 1.0) -> data.UserDataset:
    """Users of one class each; the last one's records can be as wild as they like."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    inputs = np.random.default_rng(seed).normal(0, 1, (len(owners), 3)).astype(np.float32)
    inputs[owners == len(sizes) - 1] *= scale
    return data.from_arrays(inputs, owners, np.array([f"u{owner:02d}" for owner in owners]))


def public(classes: int = 6, each: int = 4) -> data.UserDataset:
    """Two public users who share all classes; the first column of an input is its class, the second tells it apart."""
    labels = np.repeat(np.arange(classes), each)
    inputs = np.stack([100.0 + labels, np.arange(len(labels)), np.ones(len(labels))], axis=1).astype(np.float32)
    return data.from_arrays(inputs, labels, np.array(["one", "two"])[np.arange(len(labels)) % 2])


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def clients_of(users: data.UserDataset, who: list[int], *, per_client: int = 2, global_classes: bool = False, round=0):
    cohort = Cohort.of_single_units(np.array(who))
    own = gather(users, cohort, global_classes=global_classes)
    return own, PublicNegatives(public(), per_client).join(own, cohort.slots, round, SOURCE)


def part(clients, place: int) -> tuple[list, list]:
    rows = slice(clients.offsets[place], clients.offsets[place + 1])
    return clients.inputs[rows].tolist(), clients.labels[rows].tolist()


def test_own_examples_come_first_and_public_classes_behind_own_ones() -> None:
    own, beside = clients_of(people([3, 1]), [0, 1])
    assert beside.classes.tolist() == [3, 3]
    assert np.diff(beside.offsets).tolist() == [3 + 2 * 3, 1 + 2 * 1]  # as many of each as of a class of its own
    for place in (0, 1):
        inputs, labels = part(beside, place)
        ours, numbers = part(own, place)
        assert (inputs[: len(ours)], labels[: len(ours)]) == (ours, numbers)
        drawn = [(row[0], label) for row, label in zip(inputs, labels, strict=True) if row[0] >= 100]
        assert len({tuple(row) for row in inputs}) == len(inputs)  # nothing is taken twice
        assert len(set(drawn)) == 2
        assert {label for _, label in drawn} == {1, 2}


def test_a_class_with_few_examples_gives_all_of_them() -> None:
    _, beside = clients_of(people([9]), [0])
    assert np.diff(beside.offsets).tolist() == [9 + 2 * 4]


def test_a_head_for_all_labels_has_its_public_rows_behind_them() -> None:
    users = people([2, 2, 2])
    _, beside = clients_of(users, [1], global_classes=True)
    assert beside.classes.tolist() == [5]
    assert sorted(set(part(beside, 0)[1])) == [1, 3, 4]


def test_what_a_client_gets_does_not_depend_on_who_else_takes_part() -> None:
    users = people([3, 1, 2, 4])
    alone = [part(clients_of(users, [who])[1], 0) for who in range(4)]
    for company in ([0, 1, 2, 3], [1, 3], [0, 2, 3]):
        _, beside = clients_of(users, company)
        assert [part(beside, place) for place in range(len(company))] == [alone[who] for who in company]


def test_the_classes_do_not_depend_on_what_the_client_holds() -> None:
    def classes(size: int) -> set[float]:
        inputs, _ = part(clients_of(people([size]), [0])[1], 0)
        return {row[0] for row in inputs if row[0] >= 100}

    assert classes(1) == classes(2) == classes(4)


def test_every_round_draws_anew_and_a_repeated_one_the_same() -> None:
    users = people([2])
    rounds = [part(clients_of(users, [0], round=number)[1], 0) for number in (*range(8), 0)]
    assert rounds[-1] == rounds[0]
    assert len({str(each) for each in rounds}) > 4


def test_all_public_examples_are_drawn_equally_often() -> None:
    """1,500 draws of 2 of 24 examples: each 125 times, std 10.7; all 24 within 5 std but for a chance of 2e-5."""
    users, counts = people([1]), np.zeros(24)
    for number in range(1500):
        inputs, _ = part(clients_of(users, [0], round=number)[1], 0)
        for row in inputs[1:]:
            counts[int(row[1])] += 1
    assert np.abs(counts - 125).max() < 54


def plan_of(clip: float = 1.0, width: int = 1, **changes) -> FedEmb:
    fields = {"cohort.users_per_client": 1, "client.negatives": 2, "clipping.norm": clip, "client.at_once": width}
    return FedEmb(**{**LOCAL, **fields, **changes})


def total(plan: FedEmb, users: data.UserDataset, present: np.ndarray, source: RandomSource) -> torch.Tensor:
    torch.manual_seed(0)
    contribution = plan.contribution(Scaled(), users, "cpu", 0, plan.with_negatives(public(), users))
    groups = plan.private_sum(len(users)).grouping.group(present, 0, source)
    theta = contribution.trained.initial
    return contribution.clipped_sum(RoundContext(theta, groups, 0, plan.clipping, plan.clipping.norm, source)).total


@settings(deadline=None, max_examples=by_profile(25))
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    width=st.sampled_from([1, 3]),
    group=st.sampled_from([1, 3]),
)
def test_one_person_moves_the_sum_by_at_most_the_sensitivity(seed, scale, clip, width, group) -> None:
    plan = plan_of(clip, width, **{"cohort.users_per_client": group, "cohort.size": 2})
    users, source = people([2, 1, 3, 1, 2, 1, 3], seed, scale), RandomSource.from_seed(seed)
    present = np.arange(7)
    distance = (total(plan, users, present, source) - total(plan, users, present[:-1], source)).norm().item()
    private_sum = plan.private_sum(7)
    sensitivity = private_sum.relative_sensitivity * private_sum.scale(clip)
    assert sensitivity == pytest.approx(clip if group == 1 else 2 * clip)
    assert distance <= sensitivity * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("width", [1, 3])
def test_a_person_of_one_class_contributes_one_clipped_vector_and_nobody_else_moves(width) -> None:
    plan, users = plan_of(0.01, width), people([2, 1, 3, 1, 2, 1, 3])
    present = np.arange(7)
    whole, without = (total(plan, users, who, SOURCE) for who in (present, present[:-1]))
    alone = total(plan, users, present[-1:], SOURCE)
    assert alone.norm().item() == pytest.approx(0.01, rel=1e-3)  # there is something to tell apart
    # in a batched operation a delta's last bits follow from the company: about 1e-7 of the 7 vectors
    torch.testing.assert_close(whole - without, alone, atol=0 if width == 1 else 1e-7, rtol=1e-9)


def test_both_trainers_agree() -> None:
    users, present = people([2, 1, 3, 1]), np.arange(4)
    one, many = (
        total(plan_of(1.0, width, **{"client.max_examples": by_profile(5)}), users, present, SOURCE) for width in (1, 3)
    )
    torch.testing.assert_close(one, many, rtol=1e-4, atol=1e-6)


def test_the_cap_counts_own_and_public_examples() -> None:
    torch.manual_seed(0)
    users = people([2, 1, 3, 1])
    for cap, processed in ((None, 2 * (6 + 3 + 9 + 3)), (5, 4 * 5)):
        plan = plan_of(**{"client.max_examples": cap})
        contribution = plan.contribution(Scaled(), users, "cpu", 0, plan.with_negatives(public(), users))
        groups = plan.private_sum(4).grouping.group(np.arange(4), 0, SOURCE)
        share = contribution.clipped_sum(
            RoundContext(contribution.trained.initial, groups, 0, plan.clipping, 1.0, SOURCE)
        )
        assert share.tally["examples"] == processed


def test_a_run_is_accounted_for_one_person_and_names_the_public_data(tmp_path) -> None:
    users, negatives = people([2, 1, 3, 1, 2, 1]), public()
    plan = plan_of(rounds=3, delta=1e-3, seed=1)
    statement = plan.fit(Scaled(), users, options=RunOptions(negatives=negatives)).statement
    grouped = plan.replace(cohort={"users_per_client": 2, "size": 1}, rounds=3)
    as_group = grouped.fit(Scaled(), users, options=RunOptions(negatives=negatives)).statement
    assert statement.epsilon < as_group.epsilon
    assert statement.epsilon == pytest.approx(
        FedAvg(cohort=3, rounds=3, delta=1e-3, noise=1.0, seed=1).fit(Scaled(), users).statement.epsilon,
        rel=1e-9,
    )
    (sentence,) = (line for line in statement.assumptions if "negatives" in line)
    assert f"24 examples of 6 classes, digest {negatives.fingerprint()}" in sentence


def test_a_run_goes_on_with_the_same_negatives_only(tmp_path) -> None:
    from sfumato.training import Callback, Stop

    class Halt(Callback):
        def on_round(self, row) -> None:
            if row["round"] == 2:
                raise Stop

    users, plan = people([2, 1, 3, 1, 2, 1]), plan_of(rounds=4, delta=1e-3, seed=1)
    torch.manual_seed(0)
    model = Scaled()
    whole = plan.fit(model, users, options=RunOptions(negatives=public())).model.state_dict()
    plan.fit(model, users, out=tmp_path / "run", options=RunOptions(negatives=public(), callbacks=[Halt()]))
    with pytest.raises(InputError, match="the negatives differ"):
        plan.fit(model, users, out=tmp_path / "run", resume=True, options=RunOptions(negatives=public(each=5)))
    resumed = plan.fit(
        model, users, out=tmp_path / "run", resume=True, options=RunOptions(negatives=public())
    ).model.state_dict()
    assert torch.equal(resumed["linear.weight"], whole["linear.weight"])


def refused(plan, negatives, users=None) -> str:
    with pytest.raises(InputError) as caught:
        plan.fit(Scaled(), people([2, 1, 3]) if users is None else users, options=RunOptions(negatives=negatives))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_training_record_among_the_negatives_is_refused() -> None:
    users = people([2, 1, 3])
    rows = np.concatenate([np.asarray(public().inputs[slice(0, None)]), users.examples(1)[0]])
    mixed = data.from_arrays(rows, np.arange(len(rows)) % 6, np.array(["p"] * len(rows)))
    assert "1 of the 25 negatives are training records" in refused(plan_of(), mixed, users)


def test_a_zero_of_the_other_sign_hides_no_training_record() -> None:
    users = people([2, 1, 3])
    zeroed = users.with_inputs(users.inputs[:] * np.float32([1, 0, 1]))
    negatives = public().with_inputs(np.concatenate([public().inputs[:-1], zeroed.inputs[:1] * np.float32([1, -1, 1])]))
    assert "1 of the 24 negatives are training records" in refused(plan_of(), negatives, zeroed)


def test_negatives_that_do_not_fit_are_refused_in_one_line() -> None:
    assert "6 classes" in refused(plan_of(**{"client.negatives": 7}), public())
    assert "client.negatives=0" in refused(plan_of(**{"client.negatives": 0}), public())
    assert "(2,)" in refused(plan_of(), data.from_arrays(np.ones((4, 2), np.float32), [0, 1, 2, 3], list("abcd")))
    assert "float64" in refused(plan_of(), data.from_arrays(np.ones((4, 3)), [0, 1, 2, 3], list("abcd")))
    assert "values" in refused(plan_of(), data.from_arrays(np.ones((4, 3), np.float32), [0.5, 1, 2, 3], list("abcd")))
    assert "ndarray" in refused(plan_of(), np.ones((4, 3), np.float32))
    assert "fedavg takes no public negatives" in refused(FedAvg(noise=1.0), public())
    assert "give negatives" in refused(plan_of(), None)


def test_a_client_of_one_class_is_told_of_negatives() -> None:
    assert "client.negatives" in refused(plan_of(**{"client.negatives": 0}), None)


@pytest.mark.parametrize("count", [-1, 1.5])
def test_a_number_of_negatives_is_a_whole_number(count) -> None:
    with pytest.raises(InputError, match="negatives must be"):
        plan_of(**{"client.negatives": count})


def test_negatives_go_through_frozen_layers_as_the_records_do(blobs, tmp_path) -> None:
    def network() -> nn.Sequential:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))

    users, strangers = blobs(8), blobs(4, seed=5)
    plan = plan_of(rounds=2, seed=1, trainable="last_blocks:1", delta=1e-3)
    without = plan.fit(network(), users, options=RunOptions(negatives=strangers))
    behind = plan.fit(network(), users, options=RunOptions(negatives=strangers, prefix_cache=tmp_path / "cache"))
    assert behind.statement.assumptions == without.statement.assumptions
    start = network()[3].weight
    ours, theirs = (result.model.state_dict()["3.weight"] - start for result in (behind, without))
    # convolutions of batches of other sizes round otherwise: 1e-7 of a value, in some 10 steps
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm() > 0
    with pytest.raises(InputError, match="negatives are training records"):
        plan.fit(network(), users, options=RunOptions(negatives=users.subset([0, 1]), prefix_cache=tmp_path / "cache"))


# Public negatives go through the frozen layers as records do, and are compared with them before.

PLAN = FedEmb(
    rounds=3,
    cohort={"size": 6, "users_per_client": 1},
    client={"negatives": 3, "epochs": 2, "learning_rate": 0.1},
    noise=0.0,
    seed=1,
    trainable="last",
)


def network(seed: int = 0) -> nn.Sequential:
    """The frozen layers give what has the shape and the type of a record."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))


def readers() -> data.UserDataset:
    owners = np.repeat(np.arange(12), 3)
    inputs = np.random.default_rng(0).normal(0, 1, (36, 6)).astype(np.float32)
    return data.from_arrays(inputs, owners, [f"u{owner:02d}" for owner in owners])


def public_features(seed: int = 1, record: np.ndarray | None = None) -> data.UserDataset:
    inputs = np.random.default_rng(seed).normal(0, 1, (24, 6)).astype(np.float32)
    if record is not None:
        inputs[7] = record
    return data.from_arrays(inputs, np.repeat(np.arange(6), 4), ["somebody"] * 24)


class Halt(Callback):
    def on_round(self, row):
        if row["round"] == 2:
            raise Stop


def test_trained_values_are_those_without_a_cache(tmp_path):
    without = PLAN.fit(network(), readers(), options=RunOptions(negatives=public_features()))
    behind = PLAN.fit(
        network(), readers(), options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache")
    )
    start = network().state_dict()["2.weight"]
    ours, theirs = (one.model.state_dict()["2.weight"] - start for one in (behind, without))
    assert theirs.any()
    # the rows of a batch round otherwise than a row alone: 1e-7 of a value, in some 20 steps
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm()
    assert (tmp_path / "cache" / "private-negatives").is_dir()


def test_a_training_record_among_the_negatives_is_refused_before_any_row_is_kept(tmp_path):
    inputs, _ = readers().examples(4)
    with pytest.raises(InputError, match="1 of the 24 negatives are training records"):
        PLAN.fit(
            network(),
            readers(),
            options=RunOptions(negatives=public_features(record=inputs[1]), prefix_cache=tmp_path / "cache"),
        )
    assert not (tmp_path / "cache").exists()


def test_a_plan_that_takes_no_negatives_refuses_them_behind_a_cache_too(tmp_path):
    plan = FedAvg(rounds=1, cohort=2, noise=1.0, seed=1, trainable="last")
    with pytest.raises(InputError, match="takes no public negatives"):
        plan.fit(network(), readers(), options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def test_a_run_behind_frozen_features_goes_on_with_the_same_negatives_only(tmp_path):
    run = {"model": network(), "data": readers(), "out": tmp_path / "run"}
    fit_plan(
        PLAN,
        options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache", callbacks=[Halt()]),
        **run,
    )
    with pytest.raises(InputError, match="the negatives differ"):
        fit_plan(
            PLAN, resume=True, options=RunOptions(negatives=public_features(2), prefix_cache=tmp_path / "cache"), **run
        )
    with pytest.raises(InputError, match="the negatives differ"):
        fit_plan(
            PLAN, resume=True, options=RunOptions(negatives=public_features(2), prefix_cache=tmp_path / "other"), **run
        )
    assert fit_plan(
        PLAN, resume=True, options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache"), **run
    ).finished


def test_the_statement_names_the_public_data_and_not_what_layers_make_of_them(tmp_path):
    plan = PLAN.replace(noise=1.0)
    told = plan.fit(
        network(), readers(), options=RunOptions(negatives=public_features(), prefix_cache=tmp_path)
    ).statement.assumptions
    assert any(public_features().fingerprint() in line for line in told)
    assert told == plan.fit(network(), readers(), options=RunOptions(negatives=public_features())).statement.assumptions


def test_a_run_is_told_from_one_with_negatives_that_were_rounded_otherwise():
    known = PublicNegatives(public_features(), 3)
    rounded = known.through(lambda given: given.with_inputs(given.inputs[:] * np.float32(1 + 1e-6)))
    one, other = (PLAN.contribution(network(), readers(), "cpu", 0, each) for each in (known, rounded))
    assert one.fingerprint() != other.fingerprint()
    assert known.assumption() == rounded.assumption()
