"""Parts of a plan on the command line: words and numbers choose them, their options stand behind a point."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import pytest

from sfumato._check import InputError, positive
from sfumato.cli import parse as parsing
from sfumato.cli.parse import CommonOptions, parse
from sfumato.cli.parts import Kinds


@dataclass(frozen=True)
class Words:
    """The toy of a library's kinds: what a word, a number or None stands for."""

    kinds: Mapping[str, type]
    number: str | None = None

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, tuple(self.kinds.values())):
            return value
        if isinstance(value, str) and value in self.kinds:
            return self.kinds[value]()
        if isinstance(value, int | float) and self.number:
            kind = self.kinds[self.number]
            return kind(**{fields(kind)[0].name: value})
        raise InputError(f"must be one of {', '.join(self.kinds)}, got {value}")


@dataclass(frozen=True, kw_only=True)
class Flat:
    """One bound.

    Attributes:
        norm: the bound.
    """

    norm: float = 1.0

    def __post_init__(self) -> None:
        positive(norm=self.norm)


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """A bound that follows a quantile.

    Attributes:
        quantile: of the norms.
        first_norm: the bound of the first round.
        rounds: of the run.
    """

    quantile: float = 0.5
    first_norm: float = 0.1
    rounds: int | None = field(default=None, metadata={"planned": True})

    def __post_init__(self) -> None:
        positive(quantile=self.quantile, first_norm=self.first_norm)


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Everybody with the same probability.

    Attributes:
        size: expected number of users.
    """

    size: int = 32


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """All, in a new order."""


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """Noise of a few buffers.

    Attributes:
        buffers: how many.
        multiplier: of the noise.
    """

    buffers: int
    multiplier: float | None = None


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Independent noise.

    Attributes:
        multiplier: of the noise.
    """

    multiplier: float | None = None


@dataclass(frozen=True, kw_only=True)
class LocalHead:
    """A head that stays.

    Attributes:
        start: what it begins with.
    """

    start: str = "random"


@dataclass(frozen=True, kw_only=True)
class Client:
    """What a client does.

    Attributes:
        epochs: over its records.
        head: of the model.
    """

    choices: ClassVar[Mapping[str, Kinds]] = {"head": Words({"local": LocalHead, "none": Shuffled})}

    epochs: int = 1
    head: LocalHead | Shuffled | str = "none"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan.

    Attributes:
        rounds: of the run.
        cohort: who takes part.
        clipping: how contributions are bounded.
        noise: what is added.
        client: what each of them does.
    """

    choices: ClassVar[Mapping[str, Kinds]] = {
        "cohort": Words({"poisson": Poisson, "shuffled": Shuffled}, "poisson"),
        "clipping": Words({"flat": Flat, "adaptive": Adaptive}, "flat"),
        "noise": Words({"gaussian": Gaussian, "blt": Buffers}, "gaussian"),
    }
    renamed: ClassVar[Mapping[str, str]] = {"--clip-norm": "--clipping", "--clients-per-round": "--cohort.size"}

    rounds: int = 10
    cohort: Poisson | Shuffled | int | str = 32
    clipping: Flat | Adaptive | float | str | None = 1.0
    noise: Gaussian | Buffers | float | str | None = None
    client: Client = Client()

    def __post_init__(self) -> None:
        for name, kinds in self.choices.items():
            object.__setattr__(self, name, kinds(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Training(CommonOptions):
    """All options.

    Attributes:
        plan: What is trained.
    """

    plan: Plan


def read(*words: object) -> Plan:
    return parse(Training, [str(word) for word in words], command="dpsgd", about="A toy.").plan


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        ((), Plan()),
        (("--clipping", "adaptive"), Plan(clipping=Adaptive())),
        (("--clipping", "adaptive", "--clipping.quantile", 0.7), Plan(clipping=Adaptive(quantile=0.7))),
        (("--clipping.first-norm=2", "--clipping=adaptive"), Plan(clipping=Adaptive(first_norm=2))),
        (("--clipping", 0.5), Plan(clipping=Flat(norm=0.5))),
        (("--clipping.norm", 0.5), Plan(clipping=Flat(norm=0.5))),
        (("--clipping", "none"), Plan(clipping=None)),
        (("--cohort", 64), Plan(cohort=Poisson(size=64))),
        (("--cohort.size", "1e3"), Plan(cohort=Poisson(size=1000))),
        (("--cohort", "shuffled"), Plan(cohort=Shuffled())),
        (("--noise", 0), Plan(noise=Gaussian(multiplier=0))),
        (("--noise", "blt", "--noise.buffers", 3), Plan(noise=Buffers(buffers=3))),
        (("--client.epochs", 4, "--rounds", 3), Plan(client=Client(epochs=4), rounds=3)),
        (
            ("--client.head", "local", "--client.head.start", "means"),
            Plan(client=Client(head=LocalHead(start="means"))),
        ),
        (("--clipping", "adaptive", "--clipping", "flat"), Plan(clipping=Flat())),
        (("--noise", "gaussian", "--noise.multiplier", "none"), Plan(noise=Gaussian())),
    ],
)
def test_a_word_or_a_number_is_a_part_and_its_options_follow(words, plan: Plan):
    assert read(*words) == plan


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--clip-norm", 1), "--clip-norm is now --clipping"),
        (("--clients-per-round=3",), "--clients-per-round is now --cohort.size"),
        (("--noise.buffers", 3), "--noise.buffers is for --noise blt, and --noise is none"),
        (("--clipping.quantile", 0.5), "--clipping.quantile is for --clipping adaptive, and --clipping is 1.0"),
        (
            ("--clipping", "none", "--clipping.norm", 1),
            "--clipping.norm is for --clipping flat, and --clipping is none",
        ),
        (("--client.head.start", "x"), "--client.head.start is for --client.head local"),
        (("--clipping", "adaptiv"), "clipping: must be one of flat, adaptive, got adaptiv"),
        (("--clipping", "adaptive", "--clipping.rounds", 3), "there is no option --clipping.rounds"),
        (("--clipping", "adaptive", "--clipping.quantil", 3), "did you mean --clipping.quantile?"),
        (("--clipping", "adaptive", "--clipping.quantile", "half"), "--clipping.quantile must be a number, got half"),
        (("--clipping", "adaptive", "--clipping.first-norm", 0), "clipping.first_norm must be > 0, got 0"),
        (("--clipping", -1), "clipping: norm must be > 0, got -1"),
        (("--noise", "blt"), "missing: --noise.buffers"),
        (("--client.epochs", "many"), "--client.epochs must be a whole number, got many"),
    ],
)
def test_what_is_no_option_of_the_chosen_parts_is_one_line(words, line: str):
    with pytest.raises(InputError) as refused:
        read(*words)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words", "plan"),
    [
        ({"clipping": {"kind": "adaptive", "quantile": 0.7}}, (), Plan(clipping=Adaptive(quantile=0.7))),
        ({"clipping": {"kind": "adaptive", "first-norm": 2}}, (), Plan(clipping=Adaptive(first_norm=2))),
        ({"clipping": 0.5, "cohort": {"size": 8}}, (), Plan(clipping=Flat(norm=0.5), cohort=Poisson(size=8))),
        ({"clipping": None, "noise": "blt", "noise.buffers": 3}, (), Plan(clipping=None, noise=Buffers(buffers=3))),
        (
            {"client": {"epochs": 4, "head": {"kind": "local", "start": "means"}}},
            (),
            Plan(client=Client(epochs=4, head=LocalHead(start="means"))),
        ),
        ({"clipping": {"kind": "adaptive", "quantile": 0.7}}, ("--clipping", 2), Plan(clipping=Flat(norm=2))),
        (
            {"clipping": {"kind": "adaptive", "quantile": 0.7}},
            ("--clipping.quantile", 0.8),
            Plan(clipping=Adaptive(quantile=0.8)),
        ),
    ],
)
def test_a_settings_file_has_parts_as_mappings(tmp_path, text, words, plan: Plan):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(text))
    assert read("--config", file, *words) == plan


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ({"clip_norm": 1}, "clip_norm is now clipping"),
        ({"clipping": {"kind": "adaptiv"}}, "clipping: must be one of flat, adaptive, got adaptiv"),
        ({"clipping": {"quantile": 0.5}}, "clipping.quantile is for clipping adaptive, and clipping is 1.0"),
        ({"clipping": {"kind": "adaptive", "quantile": "half"}}, "clipping.quantile must be float, got 'half'"),
        ({"clipping": [1, 2]}, "clipping must be flat|adaptive|FLOAT, got [1, 2]"),
        ({"clipping": {"kind": "adaptive", "quantil": 1}}, "there is no option clipping.quantil"),
        ({"clipping": {"kind": "adaptive", "rounds": 7}}, "there is no option clipping.rounds"),  # the run sets it
        ({"rounds": {"a": 1}}, "rounds must be one value"),
    ],
)
def test_a_mistake_in_a_part_of_a_settings_file_names_the_file(tmp_path, text, line: str):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(text))
    with pytest.raises(InputError) as refused:
        read("--config", file)
    assert str(refused.value).startswith(f"{file}: {line}")


def test_the_help_shows_the_words_and_the_options_of_the_chosen_part(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def shown(*words: str) -> str:
        with pytest.raises(SystemExit):
            read(*words)
        return capsys.readouterr().out

    usual = shown("--help-all")
    assert "--clipping flat|adaptive|FLOAT" in usual
    assert "--clipping.norm FLOAT" in usual
    assert "--client.epochs INT" in usual
    assert "--client.head local|none" in usual
    assert "quantile" not in usual
    chosen = shown("--clipping", "adaptive", "--help-all")
    assert "--clipping.quantile FLOAT" in chosen
    assert "clipping.norm" not in chosen
    assert "clipping.rounds" not in chosen
    assert shown("--clipping", "adaptiv", "--help-all") == usual
    assert parsing.fields(Training).keys() >= {"clipping", "clipping.norm", "cohort.size", "client.epochs"}
