"""What is kept of records: bound to layers and records, private, taken up after a stop, never used by mistake."""

import errno
import os
import stat

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data
from sfumato._check import InputError
from sfumato.training import frozen_features as cache_module
from sfumato.training.frozen_features import PrefixCache, cut_for


def model(seed: int = 0, activation: nn.Module | None = None) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 4, 3), activation or nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))


def people(count: int = 40, seed: int = 0, side: int = 8) -> data.UserDataset:
    pixels = np.random.default_rng(seed).integers(0, 256, (3 * count, side, side, 1), np.uint8)
    owners = np.repeat(np.arange(count), 3)
    return data.from_arrays(pixels, owners, [f"u{owner:03d}" for owner in owners])


def opened(folder, users, network: nn.Module | None = None, progress=None) -> PrefixCache:
    network = network or model()
    return PrefixCache(folder, cut_for(network, "last", users, "cpu"), device="cpu", progress=progress)


def test_a_row_is_what_the_layers_make_of_its_record(tmp_path):
    users, network = people(), model()
    behind = opened(tmp_path / "cache", users, network).through(users, "data")
    assert behind.input_shape == (144,)
    assert (behind.sizes == users.sizes).all()
    for user in (0, 17, 39):
        with torch.no_grad():
            wanted = network[:3](data.to_tensor(users.examples(user)[0]))
        features, labels = behind.examples(user)
        assert (labels == users.examples(user)[1]).all()
        # 9 products of numbers below one a feature, in single precision
        assert np.allclose(features, wanted, rtol=1e-5, atol=1e-6)


def test_views_of_the_same_records_share_their_rows(tmp_path):
    users = people()
    cache = opened(tmp_path / "cache", users)
    train = cache.through(users.subset(np.arange(30)), "data")
    test = cache.through(users.subset(np.arange(30, 40)), "test")
    assert train.inputs is test.inputs
    assert (len(train), len(test)) == (30, 10)
    cache.through(people(5, seed=1), "validation")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [
        "README.txt", "private-data", "private-validation",
    ]  # fmt: skip


def test_rows_are_computed_once(tmp_path):
    users, told = people(), []
    opened(tmp_path / "cache", users, progress=lambda *now: told.append(now)).through(users, "data")
    assert told[-1] == ("data", 120, 120)
    again: list[tuple] = []
    opened(tmp_path / "cache", users, progress=lambda *now: again.append(now)).through(users, "data")
    assert again == []


def test_the_folders_are_for_their_owner_only_and_say_that_they_are_private(tmp_path):
    users, before = people(), os.umask(0o022)
    try:
        opened(tmp_path / "cache", users).through(users, "data")
    finally:
        os.umask(before)
    cache = tmp_path / "cache"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE((cache / "private-data").stat().st_mode) == 0o700
    assert stat.S_IMODE((cache / "README.txt").stat().st_mode) == 0o600
    assert (cache / "README.txt").read_text().startswith("PRIVATE.")
    assert "PRIVATE." in (cache / "private-data" / "store.json").read_text()


def test_a_folder_that_was_there_is_closed_to_others(tmp_path):
    users, unfinished = people(), tmp_path / "cache" / ".private-data.partial"
    unfinished.mkdir(parents=True, mode=0o755)
    opened(tmp_path / "cache", users).through(users, "data")
    assert stat.S_IMODE((tmp_path / "cache" / "private-data").stat().st_mode) == 0o700


def test_a_folder_of_something_else_is_refused_and_nothing_comes_to_lie_in_it(tmp_path):
    """It may hold public pictures, which are shared."""
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    with pytest.raises(InputError, match=r"must be a new folder or a cache, and .*pictures holds a; name another one"):
        opened(tmp_path / "pictures", people())
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["a"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path, monkeypatch, begun):
    def full(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    users = people()
    folder = tmp_path / "cache"
    if begun:
        opened(folder, users).through(people(5, seed=1), "validation")
    monkeypatch.setattr(cache_module, "stored_rows" if begun else "write_atomic", full)
    with pytest.raises(InputError, match=r"prefix_cache \S+cache cannot be written: Read-only.*--prefix-cache"):
        opened(folder, users).through(users, "data")


def test_another_set_of_records_has_another_fingerprint_and_the_same_one_the_same(tmp_path):
    users = people()
    known = opened(tmp_path / "one", users).through(users, "data").fingerprint()
    assert opened(tmp_path / "two", users).through(users, "data").fingerprint() == known
    assert opened(tmp_path / "three", users, model(1)).through(users, "data").fingerprint() != known
    others = people(seed=1)
    assert opened(tmp_path / "four", others).through(others, "data").fingerprint() != known
    part = users.subset(np.arange(20))
    assert opened(tmp_path / "one", part).through(part, "data").fingerprint() != known


@pytest.mark.parametrize(
    ("users", "network", "message"),
    [
        (people(), model(1), r"private-data was made of something else \(layers \w{12}… then, \w{12}… now\)"),
        (people(), model(0, nn.Tanh()), r"made of something else \(layers .*\): other weights, or another cut"),
        (
            people(seed=1),
            model(),
            r"made of something else \(records \w{12}… then, \w{12}… now\): other.*another folder",
        ),
        (people(side=9), nn.Sequential(*model()[:3], nn.Linear(196, 4)), r"input_shape \[8, 8, 1\] then, \[9, 9, 1\]"),
    ],
)
def test_rows_of_other_layers_or_records_are_refused(tmp_path, users, network, message):
    opened(tmp_path / "cache", people()).through(people(), "data")
    with pytest.raises(InputError, match=message):
        opened(tmp_path / "cache", users, network).through(users, "data")


class Stop(BaseException):
    """Ctrl-C, or whatever ends a process that may still write."""


def test_what_was_computed_before_a_stop_is_not_computed_again(tmp_path):
    users, told = people(), []

    def stop(name: str, done: int, of: int) -> None:
        told.append(done)
        if done >= 64:
            raise Stop

    with pytest.raises(Stop):
        opened(tmp_path / "cache", users, progress=stop).through(users, "data")
    assert not (tmp_path / "cache" / "private-data").exists()
    later: list[int] = []
    found = opened(tmp_path / "cache", users, progress=lambda _, done, of: later.append(done)).through(users, "data")
    assert (told, later) == ([32, 64], [96, 120])
    assert found.fingerprint() == opened(tmp_path / "whole", users).through(users, "data").fingerprint()


def test_a_half_written_cache_of_other_records_is_refused(tmp_path):
    def stop(name: str, done: int, of: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        opened(tmp_path / "cache", people(), progress=stop).through(people(), "data")
    others = people(seed=1)
    with pytest.raises(InputError, match=r"was begun with other options \(records=.*to start again"):
        opened(tmp_path / "cache", others).through(others, "data")


def test_an_unfinished_folder_that_was_damaged_is_refused(tmp_path):
    def stop(name: str, done: int, of: int) -> None:
        if done == 64:
            raise Stop

    with pytest.raises(Stop):
        opened(tmp_path / "cache", people(), progress=stop).through(people(), "data")
    for waiting in (tmp_path / "cache" / "private-data.partial").glob("waiting-*"):
        waiting.write_bytes(b"something else")
    with pytest.raises(InputError, match="is damaged; delete"):
        opened(tmp_path / "cache", people()).through(people(), "data")


def test_a_changed_byte_is_seen(tmp_path):
    users = people()
    opened(tmp_path / "cache", users).through(users, "data")
    file = tmp_path / "cache" / "private-data" / "examples.arrow"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"were changed after packing; delete .*private-data, and it is made again"):
        opened(tmp_path / "cache", users).through(users, "data")


def test_a_cache_that_was_cut_short_is_seen(tmp_path):
    users = people()
    opened(tmp_path / "cache", users).through(users, "data")
    file = tmp_path / "cache" / "private-data" / "examples.arrow"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"is damaged; delete .*private-data, and it is made again"):
        opened(tmp_path / "cache", users).through(users, "data")


def test_layers_whose_code_has_changed_since_are_seen(tmp_path, monkeypatch):
    """Names, weights and settings are the same, so digests are; what is computed is not."""
    users, network = people(), model()
    opened(tmp_path / "cache", users, network).through(users, "data")
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x.abs())
    with pytest.raises(InputError, match="holds other rows than the layers give now"):
        opened(tmp_path / "cache", users, network).through(users, "data")


def test_layers_that_begin_to_keep_something_are_seen_while_records_go_through(tmp_path):
    calls = []

    class Late(nn.Module):
        """Keeps what it sees from its hundredth call on, of which no trial knows."""

        def __init__(self):
            super().__init__()
            self.register_buffer("level", torch.zeros(()))

        def forward(self, x):
            calls.append(1)
            if len(calls) > 100:
                self.level += x.mean()
            return x

    users = people()
    network = nn.Sequential(nn.Conv2d(1, 4, 3), Late(), nn.Flatten(), nn.Linear(144, 4))
    with pytest.raises(InputError, match=r"keep something.*1\.level changes"):
        opened(tmp_path / "cache", users, network).through(users, "data")
    assert not (tmp_path / "cache" / "private-data").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(InputError, match="must be a folder"):
        opened(tmp_path / "cache", people())


def test_another_process_that_writes_the_same_rows_is_waited_for_by_its_user(tmp_path):
    users = people()

    def second(name: str, done: int, of: int) -> None:
        with pytest.raises(InputError, match="another process is writing"):
            opened(tmp_path / "cache", users).through(users, "data")

    opened(tmp_path / "cache", users, progress=second).through(users, "data")


def test_examples_have_rows_of_their_own(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 1), np.uint8)
    whole = data.examples_from_arrays(pixels, np.arange(50) % 4, num_classes=4)
    network, train = model(), whole.subset(np.arange(40))
    behind = opened(tmp_path / "cache", train, network).through(train, "data")
    (features,), targets = behind.examples(np.array([3, 39]))
    with torch.no_grad():
        wanted = network[:3](data.to_tensor(pixels[[3, 39]]))
    assert np.allclose(features, wanted, rtol=1e-5, atol=1e-6)
    assert targets.tolist() == [3, 3]
    two = data.ExampleDataset(inputs=(pixels, pixels), targets=np.arange(50))
    with pytest.raises(InputError, match="one input each"):
        cut_for(network, "last", two, "cpu")
