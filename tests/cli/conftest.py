"""The commands, run in this process or as real processes, and small folders of pictures to run them on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forked import Forked
from sfumato.cli import main as program
from sfumato.cli.main import main
from sfumato.report import page


@dataclass(frozen=True)
class Outcome:
    """What a command left on the terminal."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of a refusal."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert self.err.startswith("sfumato: "), self.err
        assert self.err.endswith("\n"), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("sfumato: ").strip()


@pytest.fixture
def sfumato(capsys: pytest.CaptureFixture[str]):
    """Run a command in this process: `sfumato("account", "--steps", 3)`."""

    def run(*words: object) -> Outcome:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(autouse=True)
def no_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs leave a page that shows nothing, which takes half of a small run's time; not under `@pytest.mark.page`."""
    if request.node.get_closest_marker("page") is None:
        monkeypatch.setattr(page, "render", lambda *_, **__: "<!doctype html>\n")


@pytest.fixture
def process(tmp_path: Path):
    """Start a command as a process of its own: `process("account", ...)`; killed at the end of the test."""
    started: list[Forked] = []

    def start(*words: object, script: Path = Path(program.__file__)) -> Forked:
        folder = tmp_path / "processes"
        folder.mkdir(exist_ok=True)
        out, errors = (folder / f"{len(started)}.{stream}" for stream in ("out", "err"))
        started.append(Forked(script, [str(word) for word in words], out, {"OMP_NUM_THREADS": "1"}, errors))
        return started[-1]

    yield start
    for child in started:
        child.kill()


def draw(root: Path, users: int, images: int, side: int = 12, seed: int = 0) -> Path:
    """`root/p00/0.png` …: every user has a face of their own, with noise."""
    rng = np.random.default_rng(seed)
    for user in range(users):
        face = rng.integers(40, 216, (side, side))
        folder = root / f"p{user:02d}"
        folder.mkdir(parents=True)
        for image in range(images):
            pixels = (face + rng.normal(0, 20, face.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{image}.png")
    return root


@pytest.fixture
def photos(tmp_path: Path):
    """A new folder of pictures: `photos(users, images, side=12)`."""
    made = 0

    def make(users: int, images: int, side: int = 12) -> Path:
        nonlocal made
        made += 1
        return draw(tmp_path / f"photos{made}", users, images, side, seed=made)

    return make


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 people with 4 pictures each; tests only read it."""
    return draw(tmp_path_factory.mktemp("people") / "people", 16, 4)


SMALL = (
    "--rounds", 3, "--cohort", 3, "--cohort.users-per-client", 2, "--client.epochs", 1, "--embedding-dim", 8,
)  # fmt: skip


@pytest.fixture
def small() -> tuple[object, ...]:
    """Options of a plan that trains in a moment."""
    return SMALL


@pytest.fixture
def contents():
    """`contents(folder)`: all files below a folder, to see that nothing was touched."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

    return read


@pytest.fixture(scope="session")
def finished(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished, seeded run on `people`; tests only read it, or copy it."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    words = ["fedemb", "--data", people, *SMALL, "--noise", 1, "--seed", 3, "--out", folder]
    assert main([str(word) for word in words]) == 0
    return folder
