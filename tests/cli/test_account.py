"""`sfumato account` and `calibrate`: what a run costs, and the number that is left open."""

import json
import math

import pytest

from sfumato import accounting as acc
from sfumato.accounting.strategies import root_error
from sfumato.accounting.strategy_search import optimize_blt
from sfumato.report import extrapolate
from slow import slow_but

# account, calibrate and extrapolate: the numbers are those of the library, for people and for machines.


def test_account_gives_the_library_s_numbers(sfumato):
    words = ("account", "--noise-multiplier", 1, "--sampling-rate", 0.01, "--steps", 1000, "--delta", 1e-5)
    told = json.loads(sfumato(*words, "--json").out)
    event = acc.Gaussian(1.0).poisson(0.01) * 1000
    assert told["epsilon"] == acc.guarantee(event).epsilon(1e-5)
    assert told["methods"]["rdp"] == acc.guarantee(event, method="rdp").epsilon(1e-5)
    assert acc.event_from_json(told["event"]) == event
    shown = sfumato(*words).out
    assert f"{told['epsilon']:.4g}" in shown
    assert "rdp" in shown
    assert "zcdp" in shown


def test_one_gaussian_costs_what_its_closed_form_says(sfumato):
    told = json.loads(sfumato("account", "--noise-multiplier", 2, "--delta", 1e-5, "--json").out)

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    epsilon, mu = told["methods"]["gaussian"], 0.5  # Balle and Wang 2018, Theorem 8
    delta = phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-6)


def test_no_noise_has_no_guarantee(sfumato):
    assert json.loads(sfumato("account", "--noise-multiplier", 0, "--json").out)["epsilon"] == "inf"
    shown = sfumato("account", "--noise-multiplier", 0).out
    assert "epsilon infinite (no guarantee)" in shown
    assert "rdp" not in shown  # an accountant that says nothing is not listed


def test_cohorts_of_a_fixed_size_are_not_accounted_as_poisson(sfumato):
    words = ("account", "--noise-multiplier", 1, "--steps", 100, "--json")
    poisson = json.loads(sfumato(*words, "--sampling-rate", 0.01).out)["epsilon"]
    fixed = json.loads(sfumato(*words, "--sample-size", 10, "--population", 1000).out)["epsilon"]
    assert fixed > poisson
    assert "--population" in sfumato(*words, "--sample-size", 10).line


RUN = ("--noise-multiplier", 1, "--sampling-rate", 0.02, "--steps", 60)


def test_account_shows_the_accountants_side_by_side(sfumato):
    told = json.loads(sfumato("account", *RUN, "--json").out)
    event = acc.Gaussian(1.0).poisson(0.02) * 60
    for name in ("pld", "rdp", "zcdp", "pure"):
        cost = acc.guarantee(event, method=name).epsilon(1e-5)
        assert told["methods"][name] == ("inf" if math.isinf(cost) else cost)
    assert (told["lower"]["pld"], told["methods"]["pld"]) == acc.guarantee(event).epsilon_interval(1e-5)
    assert list(told["unknown"]) == ["gaussian"]
    assert "plain Gaussian" in told["unknown"]["gaussian"]
    shown = {line.split()[0]: line.split() for line in sfumato("account", *RUN).out.splitlines() if line}
    assert shown["pld"][1:] == [f"{told['lower']['pld']:.4g}", f"{told['methods']['pld']:.4g}"]
    assert "gaussian" not in shown
    assert "pure" not in shown
    assert shown["zcdp"][1] == "-"


def test_examples_batches_and_epochs_are_a_sampling_rate_and_steps(sfumato):
    words = ("account", "--noise-multiplier", 1.1, "--examples", 6000, "--batch-size", 60, "--epochs", 2.5)
    told = json.loads(sfumato(*words, "--json").out)
    event = acc.Gaussian(1.1).poisson(0.01) * 250
    assert acc.event_from_json(told["event"]) == event
    assert told["epsilon"] == acc.guarantee(event).epsilon(0.01 / 6000)
    shuffled = acc.guarantee(acc.Gaussian(1.1) * 3, "zero_out").epsilon(0.01 / 6000)
    assert told["shuffled"] == {"adjacency": "zero_out", "epsilon": shuffled}
    assert f"without amplification (zero_out): epsilon {shuffled:.4g}" in sfumato(*words).out
    replaced = json.loads(sfumato(*words, "--adjacency", "replace", "--json").out)["shuffled"]
    assert replaced == {
        "adjacency": "replace",
        "epsilon": acc.guarantee(acc.Gaussian(1.1) * 3, "replace").epsilon(0.01 / 6000),
    }


def test_examples_and_batches_go_with_steps_as_well_as_with_epochs(sfumato):
    words = ("account", "--noise-multiplier", 1.1, "--examples", 6000, "--batch-size", 60)
    by_epochs, by_steps = (
        json.loads(sfumato(*words, *run, "--json").out) for run in (("--epochs", 2.5), ("--steps", 250))
    )
    assert by_steps == by_epochs
    assert "2.5 epochs: 250 steps at sampling rate 0.01\n" in sfumato(*words, "--steps", 250).out
    more = json.loads(sfumato(*words, "--steps", 301, "--json").out)["shuffled"]["epsilon"]
    assert more == acc.guarantee(acc.Gaussian(1.1) * 4, "zero_out").epsilon(0.01 / 6000)


def test_rho_that_ignores_sampling_is_named_so_and_does_not_stand_by_the_best_epsilon(sfumato):
    words = ("account", "--noise-multiplier", 1.1, "--steps", 1000)
    for sampling in (("--sampling-rate", 0.01), ("--sample-size", 1, "--population", 100)):
        told = json.loads(sfumato(*words, *sampling, "--json").out)
        assert "rho" not in told
        assert told["rho_without_sampling"] > 400
        assert "rho" not in sfumato(*words, *sampling).out
    told = json.loads(sfumato(*words, "--json").out)
    assert f"; rho {told['rho']:.4g} (zCDP)\n" in sfumato(*words).out


@pytest.mark.parametrize("written", slow_but(["1e3", "1E3", "1.0e+3", "1000.0", "0.1e4"], "1.0e+3"))
def test_a_whole_number_may_be_written_with_an_exponent(sfumato, tmp_path, written):
    words = ("account", "--noise-multiplier", 1.1, "--sampling-rate", 0.01, "--json")
    expected = sfumato(*words, "--steps", 1000).out
    assert sfumato(*words, "--steps", written).out == expected
    assert sfumato(*words, f"--steps={written}").out == expected
    for name in ("run.json", "run.yaml"):
        (tmp_path / name).write_text(f'{{"steps": {written}}}')
        assert sfumato(*words, "--config", tmp_path / name).out == expected


def test_a_user_with_several_examples_costs_more_than_one_example(sfumato):
    words = ("account", "--noise-multiplier", 4, "--examples", 1000, "--batch-size", 20, "--epochs", 2)
    one, three = (
        json.loads(sfumato(*words, "--examples-per-user", count, "--json").out)["epsilon"] for count in (1, 3)
    )
    assert one < three
    event = (acc.Gaussian(4.0).poisson(0.02) * 100).for_group(3)
    assert three == acc.guarantee(event).epsilon(0.01 / 1000)


def test_account_reports_what_an_attack_can_find(sfumato):
    told = json.loads(sfumato("account", "--noise-multiplier", 1, "--json").out)
    assert told["mu"] == pytest.approx(1.0, rel=1e-9)
    assert told["regret"] == pytest.approx(0.0, abs=1e-9)
    assert told["advantage"] == pytest.approx(math.erf(math.sqrt(0.125)), rel=1e-6)  # of N(0,1) against N(1,1)
    assert told["tpr_at_1_percent_fpr"] == pytest.approx(0.09236214091561878, rel=1e-4)
    shown = sfumato("account", "--noise-multiplier", 1).out
    assert "no easier to attack than one Gaussian sum with mu = 1 (Gaussian DP)\n" in shown
    assert "\nan attack with a false positive rate of 1 % finds at most 9.24 % of those that took part;" in shown


def test_account_and_calibrate_say_what_they_took_the_run_to_be(sfumato):
    epochs = ("--examples", 6000, "--batch-size", 60, "--epochs", 2.5)
    for words in (("account", "--noise-multiplier", 1.1), ("calibrate", "--epsilon", 2)):
        shown = sfumato(*words, *epochs).out
        assert "taken to be: 6,000 examples, batches of 60, 2.5 epochs: 250 steps at sampling rate 0.01\n" in shown
    given = ("--noise-multiplier", 2, "--sampling-rate", 0.02)
    assert "taken to be: 1 step at sampling rate 0.02\n" in sfumato("account", *given).out
    cohorts = ("account", "--noise-multiplier", 2, "--sample-size", 2, "--population", 9, "--steps", 3)
    assert "taken to be: 3 steps with cohorts of 2 of 9\n" in sfumato(*cohorts).out


def test_an_event_in_a_file_takes_the_place_of_the_noise(sfumato, tmp_path):
    file = tmp_path / "event.json"
    file.write_text(json.dumps(acc.Gaussian(1.0).to_json()))
    words = ("--sampling-rate", 0.02, "--steps", 60, "--json")
    from_file = json.loads(sfumato("account", "--event", file, *words).out)
    assert from_file == json.loads(sfumato("account", *RUN, "--json").out)
    file.write_text(json.dumps(from_file))  # what the command printed is an event, too
    again = json.loads(sfumato("account", "--event", file, "--json").out)
    assert again["epsilon"] == from_file["epsilon"]
    twice = acc.event_from_json(json.loads(sfumato("account", "--event", file, "--steps", 2, "--json").out)["event"])
    assert twice == acc.Gaussian(1.0).poisson(0.02) * 120


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1", "is not JSON"),
        ("[" * 200_000, "is not JSON"),
        ("[1]", "must hold what an event's to_json() gives"),
        ('{"event": "gaussian"}', "noise_multiplier"),
        ('{"event": "gaussian", "noise_multiplier": -1}', "noise_multiplier must be > 0"),
        ('{"event": "no such"}', "unknown event"),
    ],
)
def test_a_file_that_holds_no_event_is_refused(sfumato, tmp_path, text, said):
    file = tmp_path / "event.json"
    file.write_text(text)
    line = sfumato("account", "--event", file).line
    assert said in line
    assert "event.json" in line
    assert "event.json" in sfumato("account", "--event", tmp_path / "other" / "event.json").line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--noise-multiplier"),
        (("--noise-multiplier", 1, "--event", "e.json"), "either --noise-multiplier"),
        (("--noise-multiplier", -1), "--noise-multiplier must be >= 0"),
        (("--noise-multiplier", "nan"), "--noise-multiplier must be a number"),
        (("--noise-multiplier", "inf"), "--noise-multiplier must be >= 0 and finite"),
        (("--noise-multiplier", "much"), "--noise-multiplier"),
        (("--noise-multiplier", 1, "--sampling-rate", 1.5), "--sampling-rate must be in [0, 1]"),
        (("--noise-multiplier", 1, "--sampling-rate", -0.1), "--sampling-rate must be in [0, 1]"),
        (("--noise-multiplier", 1, "--sampling-rate", "nan"), "--sampling-rate must be a number"),
        (("--noise-multiplier", 1, "--steps", -1), "steps must be a whole number >= 0"),
        (("--noise-multiplier", 1, "--steps", 1.5), "--steps"),
        (("--noise-multiplier", 1, "--delta", 0), "delta must be in (0, 1)"),
        (("--noise-multiplier", 1, "--delta", 1), "delta must be in (0, 1)"),
        (("--noise-multiplier", 1, "--delta", 2), "delta must be in (0, 1)"),
        (("--noise-multiplier", 1, "--delta", -1e-5), "delta must be in (0, 1)"),
        (("--noise-multiplier", 1, "--delta", "nan"), "delta must be a number"),
        (("--noise-multiplier", 1, "--population", 10), "--sample-size"),
        (("--noise-multiplier", 1, "--sample-size", 20, "--population", 10), "--sample-size must be <= population"),
        (("--noise-multiplier", 1, "--sampling-rate", 0.1, "--sample-size", 2, "--population", 9), "--sampling-rate"),
        (("--noise-multiplier", 1, "--examples", 10), "give --batch-size too"),
        (("--noise-multiplier", 1, "--epochs", 1), "give --examples and --batch-size too"),
        (("--noise-multiplier", 1, "--examples", 10, "--epochs", 1), "give --batch-size too"),
        (("--noise-multiplier", 1, "--examples", 10, "--batch-size", 2), "give --epochs or --steps too"),
        (("--noise-multiplier", 1, "--examples", 9, "--batch-size", 1, "--steps", -1), "steps must be a whole number"),
        (
            ("--noise-multiplier", 1, "--examples", 9, "--batch-size", 1, "--steps", 1, "--sampling-rate", 1),
            "take the place of --sampling-rate",
        ),
        (
            ("--noise-multiplier", 1, "--examples", 9, "--batch-size", 1, "--steps", 1, "--sample-size", 1),
            "--sample-size takes the place",
        ),
        (
            ("--noise-multiplier", 1, "--examples", 9, "--batch-size", 10, "--epochs", 1),
            "--batch-size must be <= examples",
        ),
        (("--noise-multiplier", 1, "--examples", 9, "--batch-size", 0, "--epochs", 1), "--batch-size must be a whole"),
        (("--noise-multiplier", 1, "--examples", 9, "--batch-size", 1, "--epochs", 0), "epochs must be > 0"),
        (("--noise-multiplier", 1, "--examples", 9, "--batch-size", 3, "--epochs", 0.3), "at least one step, 0.3333"),
        (("--noise-multiplier", 1, "--examples", 9, "--batch-size", 1, "--epochs", 1, "--steps", 3), "takes the place"),
        (("--noise-multiplier", 1, "--examples-per-user", 0), "--examples-per-user must be a whole"),
        (
            ("--noise-multiplier", 1, "--sample-size", 2, "--population", 9, "--examples-per-user", 2),
            "group is not known",
        ),
        (("--noise-multiplier", 1, "--plot", "a.svg"), "--steps of at least 2"),
        (("--noise-multiplier", 1, "--steps", 9, "--plot", "a.txt"), ".svg, .png, .pdf"),
        (("--noise-multiplier", 1, "--steps", 9, "--plot", "nowhere/a.svg"), "no folder nowhere"),
        (("--noise-multiplier", 0, "--steps", 9, "--plot", "a.svg"), "nothing to draw"),
    ],
)
def test_account_refuses_what_cannot_be_in_one_line(sfumato, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in sfumato("account", *words).line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("--steps", 0), ("--sampling-rate", 0, "--steps", 10)])
def test_nothing_released_costs_nothing(sfumato, words):
    told = json.loads(sfumato("account", "--noise-multiplier", 1, *words, "--json").out)
    assert told["epsilon"] == told["advantage"] == told["mu"] == told["rho"] == 0
    assert set(told["methods"].values()) == {0.0}
    assert told["tpr_at_1_percent_fpr"] == pytest.approx(0.01)


def test_a_sampling_rate_of_one_is_no_sampling(sfumato):
    words = ("account", "--noise-multiplier", 3, "--steps", 4, "--json")
    assert sfumato(*words, "--sampling-rate", 1).out == sfumato(*words).out


@pytest.mark.slow
def test_ten_million_steps_have_an_answer(sfumato):
    words = ("account", "--noise-multiplier", 2, "--sampling-rate", 1e-4, "--steps", 10_000_000, "--delta", 1e-6)
    told = json.loads(sfumato(*words, "--json").out)
    assert 0 < told["lower"]["pld"] <= told["epsilon"] <= told["methods"]["pld"] <= told["methods"]["rdp"]


def test_a_tiny_delta_has_an_answer_from_those_who_know_it(sfumato):
    told = json.loads(sfumato("account", *RUN, "--delta", 1e-300, "--json").out)
    assert told["epsilon"] <= told["methods"]["rdp"]
    assert 30 < told["epsilon"] < math.inf


def test_plot_draws_bounds_against_steps(sfumato, tmp_path):
    words = ("account", "--noise-multiplier", 0.5, "--sampling-rate", 2e-5, "--steps", 100, "--delta", 1e-8)
    file = tmp_path / "a.svg"
    told = json.loads(sfumato(*words, "--plot", file, "--json").out)
    steps = [point["steps"] for point in told["curve"]]
    assert steps[0] == 1
    assert steps == sorted(set(steps))
    assert steps[-1] == 100
    low, high = told["curve"][0]["pld"]
    assert low <= 0.05759 <= high * (1 + 1e-3)  # of the curve that presented connecting the dots
    for point in told["curve"]:
        low, high = point["pld"]
        assert low <= high <= point["rdp"][1]
    assert told["curve"][-1]["rdp"][1] == told["methods"]["rdp"]
    drawn = file.read_text()
    for name in ("connecting the dots", "Rényi", "steps"):
        assert name in drawn
    assert f"plot: {file}" in sfumato(*words, "--plot", file).out
    assert file.read_text() == drawn  # the same run gives the same bytes


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_plot_writes_other_formats(sfumato, tmp_path, suffix, begins):
    file = tmp_path / f"a.{suffix}"
    assert sfumato("account", "--noise-multiplier", 1, "--steps", 2, "--plot", file).code == 0
    assert file.read_bytes().startswith(begins)


@pytest.mark.parametrize("open_number", ["--noise-multiplier", "--steps", "--sampling-rate"])
def test_what_calibrate_finds_meets_the_budget_and_no_better_number_does(sfumato, open_number):
    numbers = {"--noise-multiplier": 1.2, "--steps": 500, "--sampling-rate": 0.02}
    given = [word for name, value in numbers.items() if name != open_number for word in (name, value)]
    told = json.loads(sfumato("calibrate", "--epsilon", 2, "--delta", 1e-6, *given, "--json").out)
    numbers[open_number] = told[open_number[2:].replace("-", "_")]

    def epsilon(**better: float) -> float:
        chosen = {**{name[2:].replace("-", "_"): value for name, value in numbers.items()}, **better}
        event = acc.Gaussian(chosen["noise_multiplier"]).poisson(chosen["sampling_rate"]) * int(chosen["steps"])
        return acc.guarantee(event).epsilon(1e-6)

    assert epsilon() == told["epsilon"] <= 2
    name, value = open_number[2:].replace("-", "_"), numbers[open_number]
    better = {"noise_multiplier": value * (1 - 1e-4), "steps": value + 1, "sampling_rate": value * (1 + 1e-4)}[name]
    assert epsilon(**{name: better}) > 2


def test_calibrate_refuses_an_unreachable_budget_and_an_unclear_question(sfumato):
    words = ("calibrate", "--epsilon", 1e-9, "--steps", 1000, "--sampling-rate", 1)
    assert "out of reach" in sfumato(*words).line
    assert "give two of" in sfumato("calibrate", "--epsilon", 1).line


def test_extrapolate_gives_both_conventions(sfumato):
    words = ("extrapolate", "--populations", "3e6", "1e7", "--multipliers", 1, 2)
    rows = json.loads(sfumato(*words, "--json").out)["rows"]
    published = {(3_000_000, 1): 2.10, (10_000_000, 1): 1.98}  # by RDP, paper's convention
    for row in rows:
        assert row["epsilon_user"]["rdp"] > row["epsilon"]["rdp"]
        if (row["population"], row["multiplier"]) in published:
            want = published[row["population"], row["multiplier"]]
            assert row["epsilon"]["rdp"] == pytest.approx(want, rel=0.01)
    shown = sfumato(*words, "--noises", "tree", "banded", "blt", "bisr").out
    assert "one user" in shown
    assert "virtual client" in shown
    ruled = [line for line in shown.splitlines() if line.startswith("─")]
    assert len(ruled) == 3
    assert max(map(len, ruled)) <= 100
    for row in rows:
        values = [row["epsilon_user"][name] for name in ("pld", "rdp", "zcdp")]
        values += [row["epsilon"][name] for name in ("pld", "rdp", "rdp_usual_orders", "zcdp")]
        assert all(f"{value:.4g}" in shown for value in values)


def test_extrapolate_refuses_a_cohort_larger_than_the_population(sfumato):
    assert "the population is 100" in sfumato("extrapolate", "--populations", 100).line
    assert "population" in sfumato("extrapolate", "--populations", 1000.5).line


# `account tree`, `account matrix`, and the crossing of sampled and correlated noise in `extrapolate`.


CORRELATED_RUN = [
    "--noise-multiplier",
    7,
    "--steps",
    2000,
    "--max-participations",
    6,
    "--min-separation",
    313,
    "--delta",
    "1e-10",
]


def told(sfumato, *words) -> dict:
    done = sfumato(*words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_production_run_costs_what_was_published(sfumato):
    found = told(sfumato, "account", "tree", *CORRELATED_RUN)
    assert round(found["rho"], 2) == 0.81
    assert found["squared_sensitivity"] == 79
    assert found["epsilon"] == pytest.approx(8.526, abs=5e-4)
    assert acc.event_from_json(found["event"]) == acc.TreeAggregation(
        noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313
    )
    out = sfumato("account", "tree", *CORRELATED_RUN).out
    assert "taken to be: 2,000 rounds with tree noise" in out
    assert "best: epsilon 8.526; rho 0.8061" in out


def test_a_matrix_reports_cost_and_error_of_the_strategy_that_it_found(sfumato):
    found = told(sfumato, "account", "matrix", "--strategy", "blt", *CORRELATED_RUN)
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


# calibrate: one target, two of three numbers; what is found meets it, and a mistake is one line.


RUN_TO_CALIBRATE = ("--sampling-rate", 0.01, "--steps", 1000)
TARGETS = [
    (("--epsilon", 1.5, "--delta", 1e-6), lambda promise: promise.epsilon(1e-6) / 1.5),
    (("--epsilon", 1.5), lambda promise: promise.epsilon(1e-5) / 1.5),
    (("--rho", 0.2), lambda promise: promise.rho() / 0.2),
    (("--mu", 0.4), lambda promise: promise.gdp().mu / 0.4),
    (("--advantage", 0.1), lambda promise: promise.advantage() / 0.1),
    (("--tpr", 0.02), lambda promise: float(promise.tpr(0.01)) / 0.02),
    (("--tpr", 0.2, "--fpr", 0.15), lambda promise: float(promise.tpr(0.15)) / 0.2),
]


def guarantee(z: float, q: float = 0.01, n: int = 1000, adjacency="add_remove") -> acc.Guarantee:
    return acc.guarantee(acc.Gaussian(z).poisson(q) * n, adjacency)


@pytest.mark.parametrize(("words", "read"), slow_but(TARGETS, TARGETS[0], TARGETS[2]))
def test_each_target_is_met_and_hardly_more_noise_is_given_than_it_needs(sfumato, words, read):
    found = json.loads(sfumato("calibrate", *words, *RUN_TO_CALIBRATE, "--json").out)["noise_multiplier"]
    assert 0.995 < read(guarantee(found)) <= 1
    assert read(guarantee(found * (1 - 2e-3))) > 1


@pytest.mark.slow
def test_the_numbers_that_are_reached_are_those_of_the_library(sfumato):
    words = ("calibrate", "--mu", 0.5, *RUN_TO_CALIBRATE, "--adjacency", "replace", "--delta", 1e-7, "--fpr", 0.05)
    told = json.loads(sfumato(*words, "--json").out)
    promise = guarantee(told["noise_multiplier"], adjacency="replace")
    assert told["epsilon"] == promise.epsilon(1e-7)
    assert told["tpr"] == float(promise.tpr(0.05))
    assert (told["mu"], told["advantage"], told["rho_without_sampling"]) == (
        promise.gdp().mu,
        promise.advantage(),
        promise.rho(),
    )
    shown = sfumato(*words).out
    assert f"noise_multiplier {told['noise_multiplier']}: mu 0.5 (replace)" in shown
    assert f"epsilon at delta 1e-07   {told['epsilon']:.4g}" in shown
    assert "tpr at fpr 0.05" in shown


def test_steps_are_counted_exactly(sfumato):
    # google-deepmind/jax_privacy, accounting.py
    words = ("--epsilon", 2, "--delta", 1e-6, "--noise-multiplier", 3, "--sampling-rate", 0.1, "--json")
    assert json.loads(sfumato("calibrate", *words).out)["steps"] == 155


def test_a_budget_for_everything_gives_the_least_noise_that_is_considered(sfumato):
    assert (
        json.loads(sfumato("calibrate", "--epsilon", 1e6, *RUN_TO_CALIBRATE, "--json").out)["noise_multiplier"] == 0.05
    )


def test_no_epsilon_at_all_is_a_target_too(sfumato):
    told = json.loads(sfumato("calibrate", "--epsilon", 0, "--delta", 1e-3, *RUN_TO_CALIBRATE, "--json").out)
    assert told["epsilon"] == 0
    assert told["advantage"] <= 1e-3


def test_a_tiny_delta_is_answered(sfumato):
    told = json.loads(sfumato("calibrate", "--epsilon", 2, "--delta", 1e-300, *RUN_TO_CALIBRATE, "--json").out)
    assert 1.9 < told["epsilon"] <= 2


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "give exactly one target, --epsilon, --rho, --mu, --advantage or --tpr; got none"),
        (("--epsilon", 1, "--rho", 1), "got --epsilon and --rho"),
        (("--epsilon", -1), "epsilon must be >= 0"),
        (("--epsilon", "nan"), "epsilon must be a number"),
        (("--epsilon", "inf"), "epsilon must be >= 0 and finite"),
        (("--epsilon", 1, "--delta", 0), "delta must be in (0, 1)"),
        (("--epsilon", 1, "--delta", 1), "delta must be in (0, 1)"),
        (("--rho", 1, "--delta", 2), "delta must be in (0, 1)"),
        (("--rho", 0), "rho must be > 0"),
        (("--mu", "inf"), "mu must be > 0 and finite"),
        (("--advantage", 1), "advantage must be in (0, 1)"),
        (("--tpr", 0), "tpr must be in (0, 1)"),
        (("--tpr", 0.5, "--fpr", 1), "fpr must be in (0, 1)"),
        (("--tpr", 0.001), "tpr 0.001 at fpr 0.01 is out of reach: the smallest between 0.05 and 10000 is 0.01"),
        (("--epsilon", 0, "--delta", 1e-300), "is out of reach: the smallest"),
        (("--epsilon", 1, "--sampling-rate", 0), "--sampling-rate must be in (0, 1]"),
        (("--epsilon", 1, "--sampling-rate", 1.5), "--sampling-rate must be in (0, 1]"),
        (("--epsilon", 1, "--steps", 0), "steps must be a whole number >= 1"),
        (
            ("--epsilon", 1, "--noise-multiplier", 1),
            "give two of --noise-multiplier, --steps (or --epochs)",
        ),
    ],
)
def test_a_mistake_is_one_line(sfumato, words, answer):
    assert answer in sfumato("calibrate", *RUN_TO_CALIBRATE, *words).line


def test_noise_of_nothing_is_refused(sfumato):
    words = ("calibrate", "--epsilon", 1, "--noise-multiplier", 0, "--sampling-rate", 0.1)
    assert "--noise-multiplier must be > 0" in sfumato(*words).line


EPOCHS = ("--examples", 6000, "--batch-size", 60, "--epochs", 2.5)


def test_epochs_over_examples_are_a_sampling_rate_and_steps_and_decide_the_delta(sfumato):
    told = json.loads(sfumato("calibrate", "--epsilon", 1, *EPOCHS, "--json").out)
    assert (told["sampling_rate"], told["steps"]) == (0.01, 250)
    assert told["delta"] == pytest.approx(0.01 / 6000)
    assert told["epsilon"] == guarantee(told["noise_multiplier"], n=250).epsilon(told["delta"])
    assert 0.995 < told["epsilon"] <= 1
    same = ("--sampling-rate", 0.01, "--steps", 250, "--delta", told["delta"])
    assert (
        json.loads(sfumato("calibrate", "--epsilon", 1, *same, "--json").out)["noise_multiplier"]
        == told["noise_multiplier"]
    )


def test_examples_and_batches_go_with_steps_and_leave_them_open(sfumato):
    words = ("calibrate", "--epsilon", 1, *EPOCHS[:4])
    by_epochs, by_steps = (json.loads(sfumato(*words, *run, "--json").out) for run in (EPOCHS[4:], ("--steps", 250)))
    assert by_steps == by_epochs
    told = json.loads(sfumato(*words, "--noise-multiplier", 1.5, "--json").out)
    assert told["sampling_rate"] == 0.01
    assert told["epsilon"] <= 1 < guarantee(1.5, n=told["steps"] + 1).epsilon(told["delta"])


@pytest.mark.slow
def test_what_was_calibrated_for_users_costs_them_as_much_by_account(sfumato):
    words = (*EPOCHS, "--examples-per-user", 3)
    noise = json.loads(sfumato("calibrate", "--epsilon", 2, *words, "--json").out)["noise_multiplier"]
    assert noise > json.loads(sfumato("calibrate", "--epsilon", 2, *EPOCHS, "--json").out)["noise_multiplier"]
    told = json.loads(sfumato("account", "--noise-multiplier", noise, *words, "--json").out)
    assert 1.99 < told["epsilon"] <= 2


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (EPOCHS, "delta 1.667e-06 = 0.01 / 6,000, as sfumato dpsgd chooses it"),
        (RUN_TO_CALIBRATE, "delta 1e-05, as none was given; choose it well below 1 / population"),
    ],
)
def test_account_and_calibrate_choose_delta_by_one_rule_and_say_which(sfumato, words, rule):
    for command in (("calibrate", "--epsilon", 1), ("account", "--noise-multiplier", 4)):
        assert rule in sfumato(*command, *words).out
        assert rule not in sfumato(*command, *words, "--delta", 1e-7).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (EPOCHS[2:], "give --examples too"),
        (EPOCHS[:4], "give two of --noise-multiplier, --steps (or --epochs)"),
        ((*EPOCHS, "--steps", 3), "--epochs takes the place of --steps"),
        ((*EPOCHS[:4], "--steps", 3, "--sampling-rate", 0.1), "take the place of --sampling-rate"),
        ((*EPOCHS, "--noise-multiplier", 1), "the third is searched"),
        (("--examples", 0, *EPOCHS[2:]), "examples must be a whole number >= 1, got 0"),
        ((*EPOCHS, "--examples-per-user", 0), "--examples-per-user must be a whole number >= 1, got 0"),
    ],
)
def test_epochs_that_say_too_little_or_too_much_are_one_line(sfumato, words, told):
    assert told in sfumato("calibrate", "--epsilon", 1, *words).line
