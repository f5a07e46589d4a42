"""`account tree`, `account matrix`, and the crossing of sampled and correlated noise in `extrapolate`."""

import json

import pytest

from sfumato import accounting as acc
from sfumato.accounting.strategies import root_error
from sfumato.accounting.strategy_search import optimize_blt
from sfumato.report import extrapolate

RUN = ["--noise-multiplier", 7, "--steps", 2000, "--max-participations", 6, "--min-separation", 313, "--delta", "1e-10"]


def told(sfumato, *words) -> dict:
    done = sfumato(*words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_production_run_costs_what_was_published(sfumato):
    found = told(sfumato, "account", "tree", *RUN)
    assert round(found["rho"], 2) == 0.81
    assert found["squared_sensitivity"] == 79
    assert found["epsilon"] == pytest.approx(8.526, abs=5e-4)
    assert acc.event_from_json(found["event"]) == acc.TreeAggregation(
        noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313
    )
    out = sfumato("account", "tree", *RUN).out
    assert "taken to be: 2,000 rounds with tree noise" in out
    assert "best: epsilon 8.526; rho 0.8061" in out


def test_a_matrix_tells_cost_and_error_of_the_strategy_that_it_found(sfumato):
    found = told(sfumato, "account", "matrix", "--strategy", "blt", *RUN)
    limits = acc.Participation(rounds=2000, max_participations=6, min_separation=313)
    error = found["prefix_error_mean"] / 7 * found["squared_sensitivity"] ** 0.5
    assert error == pytest.approx(root_error(optimize_blt(limits, buffers=4, error="mean"), limits, "mean"), rel=1e-9)
    event = acc.event_from_json(found["event"])
    assert acc.guarantee(event, "zero_out").epsilon(1e-10) == found["epsilon"]


def test_banded_columns_count_as_they_are_or_as_papers_count_them(sfumato):
    limits = ["--max-participations", 2, "--min-separation", 1427, "--delta", "1e-10"]
    words = ["account", "matrix", "--strategy", "banded", "--noise-multiplier", 8.35, "--steps", 2000, *limits]
    as_found, papers = told(sfumato, *words, "--bands", 8), told(sfumato, *words, "--bands", 8, "--unit-columns")
    assert round(papers["rho"], 6) == 0.014343  # Gboard, Brazilian Portuguese: 2 / (2 * 8.35^2)
    assert papers["squared_sensitivity"] == pytest.approx(2, rel=1e-9)
    assert as_found["epsilon_unit_columns"] == papers["epsilon"] < as_found["epsilon"] == papers["epsilon_as_found"]
    shown = sfumato(*words, "--bands", 8).out
    assert f"as papers count noise (--unit-columns): epsilon {papers['epsilon']:.4g}\n" in shown
    other = sfumato(*words, "--bands", 8, "--unit-columns").out
    assert f"as they were found or given: epsilon {as_found['epsilon']:.4g}\n" in other


def test_columns_that_overlap_have_no_second_line(sfumato):
    words = ["account", "matrix", "--strategy", "banded", "--noise-multiplier", 2, "--steps", 9]
    overlapping = [*words, "--coefficients", 1, 0.5, 0.25, "--min-separation", 1]
    assert "epsilon_unit_columns" not in told(sfumato, *overlapping)
    assert "bands must be <= --min-separation" in sfumato(*overlapping, "--unit-columns").line


def test_coefficients_can_be_given(sfumato):
    words = ["--noise-multiplier", 2, "--steps", 4, "--min-separation", 1]
    found = told(sfumato, "account", "matrix", "--strategy", "banded", "--coefficients", 1, 0.5, *words)
    assert found["squared_sensitivity"] == pytest.approx(2.5)  # columns (1, .5) in two rounds
    assert found["event"]["parameters"] == [1.0, 0.5]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tree", "--noise-multiplier", 1, "--steps", 9, "--adjacency", "add_remove"], "one unit more would shift"),
        (["tree", "--noise-multiplier", 0, "--steps", 9], "--noise-multiplier must be > 0, got 0"),
        (["tree", "--noise-multiplier", 1, "--steps", 0], "steps must be a whole number >= 1, got 0"),
        (
            ["tree", "--noise-multiplier", 1, "--steps", 9, "--max-participations", 3, "--min-separation", 4],
            "--max-participations must be <= 2, got 3: no more fit into 9 rounds with 4 between two",
        ),
        (["tree", "--noise-multiplier", 1, "--steps", 9, "--completion"], "need --restart-every"),
        (
            ["matrix", "--noise-multiplier", 1, "--steps", 9, "--strategy", "blt", "--coefficients", 0.1],
            "as many output scales as decays, got 1",
        ),
        (
            ["matrix", "--noise-multiplier", 1, "--steps", 9, "--strategy", "gaussian", "--coefficients", 0.1],
            "coefficients are for banded, blt and bisr, got gaussian",
        ),
        (
            ["matrix", "--noise-multiplier", 1, "--steps", 9, "--strategy", "blt", "--unit-columns"],
            "--unit-columns is for --strategy banded, got blt",
        ),
        (
            ["matrix", "--noise-multiplier", 1, "--steps", 9, "--strategy", "banded", "--bands", 4],
            "bands must be <= --min-separation",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(sfumato, words, message):
    done = sfumato("account", *words)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert done.err.count("\n") == 1


def test_sampled_and_correlated_noise_cross(sfumato, tmp_path):
    run = ["--users-per-client", 1, "--clients-per-round", 100, "--rounds", 400, "--noise-multiplier", 0.3]
    words = [*run, "--populations", "3e5", "--multipliers", 1, 2, 4, "--noises", "tree", "blt"]
    found = told(sfumato, "extrapolate", *words, "--figure", tmp_path / "x.svg")
    assert [each["noise"] for each in found["crossings"]] == ["tree", "blt"]
    by_users = {row["users_per_round"]: row for row in found["rows"]}
    for each in found["crossings"]:
        below, above = (
            by_users[users]["epsilon_user"]["pld"] / by_users[users]["epsilon_correlated"][each["noise"]]
            for users in (100, 400)
        )
        assert below > 1 > above
        assert 100 < each["users_per_round"] < 400
    figure = (tmp_path / "x.svg").read_text()
    assert "300000 blt user" in figure
    assert "the same at" in sfumato("extrapolate", *words).out


def test_correlated_noise_in_an_extrapolation_has_the_error_of_sampled_noise():
    """By hand for the tree: 64 rounds, 10 of 100 users a round, so that they come every tenth round."""
    row = extrapolate(
        noise_multiplier=2.0,
        rounds=64,
        clients_per_round=10,
        users_per_client=1,
        populations=[100],
        multipliers=[1],
        noises=["tree"],
    )[0]
    tree = acc.strategies.BinaryTree()
    z = 2.0 * (sum(range(1, 65)) / tree.prefix_variance(64).sum()) ** 0.5
    event = acc.TreeAggregation(noise_multiplier=z, steps=64, max_participations=None, min_separation=9)
    expected = acc.guarantee(event, "zero_out").epsilon(row.delta)
    assert row.epsilon_correlated == {"tree": pytest.approx(expected, rel=1e-9)}
