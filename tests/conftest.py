"""Fixtures that many tests share."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import nn

from sfumato import _bar, data
from sfumato.guard import guard

pytest_plugins = ("processor_time",)

settings.register_profile("full", max_examples=100)
settings.register_profile("quick", max_examples=20)
settings.load_profile("quick")  # `--hypothesis-profile full` comes later, and wins

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parent / ".." / "shared" / "data"


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


FRESH = ("adversarial", "docs", "guard")
"""Folders whose tests try users' code in fresh processes, as every run on Linux does."""


@pytest.fixture(autouse=True)
def _trials_in_one_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Elsewhere code is tried as where there are no fresh processes, which take a third of the time of all tests.

    A module or a test that is about them, or that compares a run with one in another process, is marked `fresh`. What
    several tests share is made before this, with fresh processes.
    """
    if request.path.relative_to(TESTS).parts[0] not in FRESH and request.node.get_closest_marker("fresh") is None:
        monkeypatch.setattr(guard, "can_fork", lambda: False)
    yield
    guard._hung.clear()  # after a process that took too long none are started


@pytest.fixture(autouse=True, scope="session")
def _no_lines_on_a_busy_machine() -> Iterator[None]:
    """What prints a line every ten seconds prints none in a test that takes longer only since others run, too."""
    begun = _bar.Lines.__init__

    def patient(self: _bar.Lines, title: str, every: float) -> None:
        begun(self, title, 120.0 if every == 10.0 else every)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_bar.Lines, "__init__", patient)
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Copies of data and drawn pictures go to a folder of the tests; processes that a test starts find it, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SFUMATO_CACHE", str(tmp_path_factory.getbasetemp().parent / "sfumato-cache"))
        yield


@pytest.fixture
def sigint() -> Iterator[Callable[[bool], None]]:
    """Ctrl-C stops this process and those it starts, also where the tests run in the background, which ignores it.

    `sigint(False)` ignores it from here on, as `nohup` and `&` do.
    """
    before = signal.getsignal(signal.SIGINT)

    def heed(heeded: bool) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler if heeded else signal.SIG_IGN)

    heed(True)
    yield heed
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def shared() -> Path:
    """The folder of real data beside the project."""
    if not SHARED.is_dir():
        pytest.skip("needs the data in ../shared, which is not there")
    return SHARED


@pytest.fixture
def omniglot(shared: Path):
    """The real characters: `omniglot(count)` gives the first so many as users, 20 images each."""

    def make(characters: int) -> data.UserDataset:
        arrays = np.load(shared / "omniglot_background.npz")
        chosen = arrays["character"] < characters
        labels = arrays["character"][chosen].astype(np.int64)
        return data.from_arrays(arrays["images"][chosen][..., None], labels, labels.astype(str))

    return make


@pytest.fixture
def blobs():
    """Users with two noisy classes of 8×8 pictures each: `blobs(users, seed=0)`."""

    def make(users: int, *, per_class: int = 3, seed: int = 0) -> data.UserDataset:
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(2 * users), per_class)
        centres = rng.integers(40, 216, (2 * users, 8, 8, 1))
        pixels = (centres[labels] + rng.normal(0, 20, (len(labels), 8, 8, 1))).clip(0, 255).astype(np.uint8)
        names = np.array([f"u{label // 2:03d}" for label in labels])
        return data.from_arrays(pixels, labels, names)

    return make


@pytest.fixture
def tiny():
    """A small backbone for 8×8 pictures, initialised by seed: `tiny(seed=0)`."""

    def make(seed: int = 0, dimension: int = 4) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, dimension))

    return make
