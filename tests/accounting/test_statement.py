import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.accounting import InputError, Statement

STATEMENT = Statement(
    unit="user",
    adjacency="add_remove",
    epsilon=2.0,
    delta=1e-6,
    epsilon_lower=1.99,
    rho=0.1,
    sampling="Poisson, each user with probability 0.01",
    mechanism="Gaussian noise, multiplier 1.1",
    noise_source="operating system CSPRNG",
    assumptions=("The population's size is public",),
    alternatives=({"name": "per virtual client", "unit": "virtual_client", "epsilon": math.inf, "delta": 1e-6},),
)


def test_it_survives_json_and_disk(tmp_path: Path) -> None:
    assert Statement.from_json(json.loads(json.dumps(STATEMENT.to_json(), allow_nan=False))) == STATEMENT
    STATEMENT.save(tmp_path / "statement.json")
    assert Statement.load(tmp_path / "statement.json") == STATEMENT


def test_infinity_is_safe_in_json() -> None:
    infinite = replace(STATEMENT, epsilon=math.inf)
    value = json.loads(json.dumps(infinite.to_json(), allow_nan=False))
    assert value["epsilon"] == "inf" == value["alternatives"][0]["epsilon"]
    assert Statement.from_json(value).epsilon == math.inf


def test_the_text_names_the_unit_the_numbers_and_the_conditions() -> None:
    text = STATEMENT.text()
    assert text.count("\n\n") == 1
    for words in ("one person", "(2, 1e-06)", "7.39", "is public.", "per virtual client", "CSPRNG"):
        assert words in text


def test_no_privacy_is_said_in_so_many_words() -> None:
    assert replace(STATEMENT, epsilon=math.inf).text().startswith("No differential privacy guarantee")


def test_a_weak_promise_is_called_weak() -> None:
    assert "weak" not in STATEMENT.text()
    assert "weak" in replace(STATEMENT, epsilon=20.0).text()


def test_a_large_delta_is_warned_about_once() -> None:
    warned = replace(STATEMENT, delta=1e-3, population=1000)
    assert sum("1 / population" in text for text in warned.assumptions) == 1
    assert Statement.from_json(warned.to_json()) == warned
    assert not any("Warning" in text for text in replace(STATEMENT, population=1000).assumptions)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": "household"}, "unit must be one of example"),
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"epsilon": -1.0}, "epsilon must be in"),
        ({"epsilon": math.nan}, "epsilon must be a number"),
        ({"delta": 2.0}, "delta must be in"),
        ({"epsilon_lower": 3.0}, "epsilon_lower must be in"),
    ],
)
def test_impossible_statements_are_refused(change: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(STATEMENT, **change)


def test_json_from_elsewhere_is_refused() -> None:
    with pytest.raises(InputError, match="no field 'color'"):
        Statement.from_json({**STATEMENT.to_json(), "color": "red"})
    with pytest.raises(InputError, match="not a statement"):
        Statement.from_json({"unit": "user"})
