"""Pair lists, templates, identification in a gallery, and groups, against brute force and scikit-learn."""

import tracemalloc

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.metrics import roc_auc_score, top_k_accuracy_score

from sfumato._check import InputError
from sfumato.metrics import balanced_pairs, identify, make_templates, pair_accuracy, pair_histogram, pairs_by_group
from sfumato.metrics import templates as module

RNG = np.random.default_rng(0)
PEOPLE, DIMENSIONS = 60, 16
CENTRES = RNG.normal(size=(PEOPLE, DIMENSIONS))
WHO = np.repeat(np.arange(PEOPLE), 6)
PICTURES = CENTRES[WHO] + 0.9 * RNG.normal(size=(len(WHO), DIMENSIONS))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# Pair lists.


@pytest.mark.parametrize("far", [0.001, 0.01, 0.29, 0.5])
def test_recall_on_a_pair_list_is_that_of_the_definition(far: float) -> None:
    similarity, same = np.round(RNG.normal(size=1000), 1), RNG.random(1000) < 0.3  # rounded: many ties
    similarity[same] += 1
    found = pair_histogram(similarity, same).recall_at_far((far,))
    genuine, impostor = similarity[same], similarity[~same]
    threshold = min(value for value in impostor if (impostor > value).sum() <= far * len(impostor) * (1 + 1e-12))
    assert found.threshold[far] == threshold
    assert found.recall[far] == (genuine > threshold).mean()
    assert found.realised_far[far] <= far
    assert found.compared == "the pairs given"
    assert pair_histogram(similarity, same).roc().auc == pytest.approx(roc_auc_score(same, similarity))


def test_balanced_pairs_are_of_their_kind_different_and_of_people_of_one_fold() -> None:
    names = np.array([f"p{each:02}" for each in WHO])
    rows, same, folds = balanced_pairs(names, folds=5, pairs=40, seed=1)
    assert len(rows) == 5 * 2 * 40
    np.testing.assert_array_equal(names[rows[:, 0]] == names[rows[:, 1]], same)
    assert len({tuple(sorted(pair)) for pair in rows.tolist()}) == len(rows)
    present = [set(names[rows[folds == fold]].ravel()) for fold in range(5)]
    assert sum(map(len, present)) == len(set().union(*present))
    for fold in range(5):
        assert same[folds == fold].mean() == 0.5
    again = balanced_pairs(names, folds=5, pairs=40, seed=1)
    np.testing.assert_array_equal(again[0], rows)
    few = balanced_pairs(np.array([0, 0, 1, 2, 3, 3, 4, 5]), folds=2, pairs=300, seed=3)
    assert len(few[0]) >= 4


# Templates.


def test_a_template_is_the_direction_of_the_sum_of_the_means_of_its_media() -> None:
    template = np.array([f"t{each}" for each in RNG.integers(0, 40, len(WHO))])
    media = RNG.integers(0, 3, len(WHO))
    found = make_templates(PICTURES * RNG.uniform(0.1, 9, (len(WHO), 1)), template, media)
    assert found.names.tolist() == sorted(set(template))
    for name, vector in zip(found.names, found.vectors, strict=True):
        total = np.zeros(DIMENSIONS)
        for medium in set(media[template == name]):
            total += unit(PICTURES[(template == name) & (media == medium)]).mean(axis=0)
        np.testing.assert_allclose(vector, total / np.linalg.norm(total), atol=1e-6)
    pairs = RNG.integers(0, len(found), (500, 2))
    wanted = (found.vectors[pairs[:, 0]].astype(float) * found.vectors[pairs[:, 1]]).sum(axis=1)
    np.testing.assert_allclose(found.similarities(pairs), wanted, atol=2e-6)


def test_blocks_change_nothing(monkeypatch) -> None:
    def all_of_it():
        made = make_templates(PICTURES, WHO, np.arange(len(WHO)) // 2)
        return made.vectors, made.similarities(np.array([[0, 1], [1, 2], [5, 7]])), identify_halves()

    whole = all_of_it()
    monkeypatch.setattr(module, "_ROWS", 7)
    monkeypatch.setattr(module, "_AT_ONCE", 500)
    parts = all_of_it()
    np.testing.assert_allclose(parts[0], whole[0], atol=1e-6)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-6)
    assert parts[2] == whole[2]


# One to many.


def identify_halves(**settings):
    """A gallery of two templates of each of forty people; probes of all sixty."""
    gallery = np.arange(len(WHO)) % 6 < 2
    enrolled = gallery & (WHO < 40)
    return identify(PICTURES[~gallery], WHO[~gallery], PICTURES[enrolled], WHO[enrolled], **settings)


def test_identification_is_that_of_the_definition_and_of_scikit_learn() -> None:
    found = identify_halves(ranks=(1, 3, 10), fpirs=(0.05, 0.3))
    gallery = np.arange(len(WHO)) % 6 < 2
    similar = unit(PICTURES[~gallery]) @ unit(PICTURES[gallery & (WHO < 40)]).T
    similar = similar.reshape(len(similar), 40, 2).max(axis=2)
    who = WHO[~gallery]
    mated = who < 40
    for rank, share in found.rank.items():
        assert share == pytest.approx(
            top_k_accuracy_score(who[mated], similar[mated], k=rank, labels=np.arange(40)), abs=1e-12
        )
    best = similar.max(axis=1)
    for asked, threshold in found.threshold.items():
        assert (best[~mated] > threshold + 2e-6).mean() <= found.fpir[asked] <= asked
        assert found.fpir[asked] >= asked - 1 / (~mated).sum()
        answered = (similar[mated].argmax(axis=1) == who[mated]) & (best[mated] > threshold + 1e-6)
        assert found.tpir[asked] == pytest.approx(answered.mean(), abs=0.01)
    assert (found.mated, found.non_mated, found.identities) == (160, 80, 40)


def test_a_network_that_makes_everyone_equal_finds_no_one() -> None:
    same = np.ones((6, 4))
    found = identify(same, np.arange(6), same[:5], np.arange(5), ranks=(1, 5), fpirs=(0.5,))
    assert found.rank == {1: 0.0, 5: 1.0}
    assert found.tpir == {0.5: 0.0}
    assert "allows less than one" in found.warnings[0]
    assert not identify(same, np.arange(6), same, np.arange(6)).tpir  # no open set without people who are not enrolled


# Groups.


def drawn(seed: int, shift: float):
    """Pairs of two groups; genuine pairs of the second are nearer to impostors by a shift."""
    rng = np.random.default_rng(seed)
    parts = []
    for group, lower in (("a", 0.0), ("b", shift)):
        people = rng.integers(0, 80, (2000, 2))
        same = rng.random(2000) < 0.5
        people[same, 1] = people[same, 0]
        same = people[:, 0] == people[:, 1]
        names = np.array([[f"{group}{one}", f"{group}{other}"] for one, other in people])
        parts.append((rng.normal(size=2000) + (2.0 - lower) * same, same, people[:, 0] % 10, names))
    similarity, same, folds, names = (np.concatenate(each) for each in zip(*parts, strict=True))
    return similarity, same, folds, names


GROUPS = {f"{group}{number}": group for group in "ab" for number in range(80)}


def test_groups_have_their_own_accuracy_and_a_common_threshold() -> None:
    similarity, same, folds, people = drawn(0, 1.0)
    found = pairs_by_group(similarity, same, folds, people, {**GROUPS, "a0": "few", "a1": "few"}, far=0.1)
    assert found.left_out == {"few": 2}
    assert "not ethnic groups" in found.note
    rows = np.array([first[0] == "b" for first, _ in people])
    assert found.groups["b"].accuracy[0] == pair_accuracy(similarity[rows], same[rows], folds[rows]).accuracy
    assert found.groups["b"].recall[0] == (similarity[rows & same] > found.threshold).mean()
    assert found.groups["b"].far[0] == (similarity[rows & ~same] > found.threshold).mean()
    (difference,) = found.differences
    assert (difference.first, difference.second) == ("a", "b")
    assert difference.accuracy[1] > 0
    assert difference.recall[1] > 0
    assert difference.far[1] < 0 < difference.far[2]
    for result in found.groups.values():
        for low, high in ((each[1], each[2]) for each in (result.accuracy, result.recall, result.far)):
            assert low < high


def test_an_interval_of_a_difference_that_is_zero_mostly_holds_zero() -> None:
    # 95 % intervals; of 20 independent ones at least 15 hold with probability 0.9997.
    held = 0
    for seed in range(20):
        found = pairs_by_group(*drawn(seed, 0.0), GROUPS, far=0.1)
        held += found.differences[0].recall[1] <= 0 <= found.differences[0].recall[2]
    assert held >= 15


def few_people(seed: int, spread: float, apart: float, people: int = 30):
    """Pairs of two groups of a few people each, and the chance that a genuine or impostor pair exceeds a threshold.

    Pairs of a person go together: each person moves all of them by a number of their own.
    """
    rng = np.random.default_rng(seed)
    own = rng.normal(size=2 * people) * spread
    parts = []
    for group in range(2):
        mine = np.arange(group * people, (group + 1) * people)
        genuine = np.stack([np.repeat(mine, rng.integers(1, 9, people))] * 2, axis=1)
        impostor = np.stack(np.triu_indices(people, 1), axis=1) + group * people
        impostor = impostor[impostor[:, 0] % 5 == impostor[:, 1] % 5]
        parts += [(genuine, apart + own[genuine[:, 0]]), (impostor, own[impostor].sum(axis=1) / 2)]
    who = np.concatenate([pairs for pairs, _ in parts])
    similarity = np.concatenate([middle for _, middle in parts])
    similarity = similarity + rng.normal(size=len(similarity))

    def beyond(threshold: float, same: bool) -> float:
        return float(ndtr(((apart if same else 0.0) - threshold) / np.hypot(1, spread / (1 if same else 2**0.5))))

    return similarity, who[:, 0] == who[:, 1], who[:, 0] % 5, np.char.add("p", who.astype(str)), beyond


@pytest.mark.parametrize(("spread", "apart"), [(0.0, 2.5), (1.0, 2.5), (1.0, 4.5)])
def test_intervals_of_thirty_people_hold_as_often_as_they_promise(spread: float, apart: float) -> None:
    # Of 400 independent intervals of 95 % fewer than 366 hold once in a thousand times, of 200 fewer than 180.
    held: dict[str, list[bool]] = {measure: [] for measure in ("accuracy", "recall", "far", "difference")}
    for seed in range(200):
        similarity, same, folds, names, beyond = few_people(seed, spread, apart)
        people = {name: "ab"[int(name[1:]) >= 30] for name in np.unique(names).tolist()}
        found = pairs_by_group(similarity, same, folds, names, people, far=0.1)
        for name, group in found.groups.items():
            rows = np.array([people[first] == name for first, _ in names])
            thresholds = pair_accuracy(similarity[rows], same[rows], folds[rows]).thresholds
            weights = {kind: np.bincount(folds[rows & (same == kind)], minlength=5) for kind in (True, False)}
            shares = {
                kind: np.average([beyond(each, kind) for each in thresholds], weights=weight)
                for kind, weight in weights.items()
            }
            truth = {
                "accuracy": (shares[True] + 1 - shares[False]) / 2,
                "recall": beyond(found.threshold, True),
                "far": beyond(found.threshold, False),
            }
            for measure, value in truth.items():
                _, low, high = getattr(group, measure)
                held[measure].append(low <= value <= high)
        _, low, high = found.differences[0].recall
        held["difference"].append(low <= 0 <= high)
    too_few = {400: 366, 200: 180}
    assert {measure: sum(each) for measure, each in held.items() if sum(each) < too_few[len(each)]} == {}


def test_a_group_without_an_error_has_an_interval_and_errors_of_one_person_are_those_of_one() -> None:
    names = np.array([f"p{each:02}" for each in np.repeat(np.arange(40), 10)])
    pairs = np.stack([names, names], axis=1)
    others = np.stack([names[:390], names[10:]], axis=1)
    names, same = np.concatenate([pairs, others]), np.repeat([True, False], [400, 390])
    people = dict.fromkeys(np.unique(names).tolist(), "a")
    similarity, folds = same.astype(float), np.arange(len(same)) % 10
    perfect = pairs_by_group(similarity, same, folds, names, people).groups["a"]
    assert perfect.recall[0] == perfect.recall[2] == perfect.accuracy[0] == 1
    assert 0.90 < perfect.recall[1] < 0.92  # Wilson's of 40 of 40, by Student's quantile
    assert perfect.far[0] == perfect.far[1] == 0
    assert 0.15 < perfect.far[2] < 0.20  # half as many trials
    similarity[:10] = -1
    one = pairs_by_group(similarity, same, folds, names, people).groups["a"].recall
    assert one[0] == 0.975
    assert one[1] < 0.88


def test_the_memory_of_groups_is_a_few_numbers_a_pair() -> None:
    def peak(count: int) -> int:
        rng = np.random.default_rng(0)
        people = rng.integers(0, 40, (count, 2))
        people[::2, 1] = people[::2, 0]
        same = people[:, 0] == people[:, 1]
        names = np.char.add("person number ", people.astype(str))
        given = rng.normal(size=count) + same, same, np.arange(count) % 10, names
        labels = dict.fromkeys(np.unique(names).tolist(), "a")
        tracemalloc.start()
        try:
            pairs_by_group(*given, labels, far=0.1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert (peak(200_000) - peak(100_000)) / 100_000 < 150  # bytes; 1,500 with draws for each pair


REFUSED = {
    "pairs of one kind": (lambda: pair_histogram(np.ones(3), np.ones(3, bool)), "no impostor pair"),
    "a similarity that is none": (lambda: pair_histogram(np.full(2, np.nan), np.array([True, False])), "not finite"),
    "whole numbers": (lambda: pair_histogram(np.ones(2), np.ones(2, int)), "one truth value a pair"),
    "a fold without pairs": (lambda: balanced_pairs(np.arange(20), seed=0), "fold 0 of 10"),
    "templates of another length": (lambda: make_templates(PICTURES, WHO[1:]), "one integer or text a picture"),
    "a template without direction": (
        lambda: make_templates(np.array([[1.0, 0], [-1, 0]]), np.zeros(2, int)),
        "template 0 is zero",
    ),
    "no pictures": (lambda: make_templates(PICTURES[:0], WHO[:0]), "at least one picture"),
    "a template that is not there": (
        lambda: make_templates(PICTURES, WHO).similarities(np.array([[0, 60]])),
        "there are 0 to 59",
    ),
    "a rank of zero": (lambda: identify_halves(ranks=(0,)), "rank must be"),
    "a rate of one": (lambda: identify_halves(fpirs=(1.0,)), "fpir must be in"),
    "no mated probe": (lambda: identify(np.eye(2), [0, 1], np.eye(2), [2, 3]), "no probe is of a person"),
    "widths": (lambda: identify(np.eye(2), [0, 1], np.eye(3), [0, 1, 2]), "one width"),
    "groups that are too small": (lambda: pairs_by_group(*drawn(0, 0.0), {"a0": "a"}), "no group has pairs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
