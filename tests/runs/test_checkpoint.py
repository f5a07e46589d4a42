"""Checkpoints: whole or absent, and what they hold comes back."""

import pytest
import torch

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.runs import Checkpoint, checkpoint


def sample(**changes) -> Checkpoint:
    fields = {
        "ledger_entries": 3,
        "ledger_head": "ab",
        "metrics_lines": 2,
        "fingerprint": "f",
        "phases": ("histogram",),
        "tensors": {"theta": torch.arange(3.0), "count": torch.tensor(7)},
        "state": {"round": 3, "server": {"rate": [0.1, None]}},
    }
    return Checkpoint(**{**fields, **changes})


def test_what_is_saved_comes_back(tmp_path):
    checkpoint.save(tmp_path, sample())
    loaded = checkpoint.load(tmp_path)
    assert (loaded.phases, loaded.state, loaded.ledger_head, loaded.complete) == (
        ("histogram",),
        {"round": 3, "server": {"rate": [0.1, None]}},
        "ab",
        False,
    )
    assert loaded.tensors.keys() == {"theta", "count"}
    assert torch.equal(loaded.tensors["theta"], torch.arange(3.0))


def test_a_tensor_without_elements_comes_back(tmp_path):
    state = Checkpoint(
        ledger_entries=0,
        ledger_head="",
        metrics_lines=0,
        fingerprint="f",
        tensors={"none": torch.zeros(0, dtype=torch.float64), "no columns": torch.zeros(3, 0)},
    )
    checkpoint.save(tmp_path, state)
    found = checkpoint.load(tmp_path).tensors
    assert {name: tuple(value.shape) for name, value in found.items()} == {"none": (0,), "no columns": (3, 0)}


def test_a_release_is_kept_beside_the_state(tmp_path):
    checkpoint.save_release(tmp_path, "histogram", {"n": torch.tensor([1.5, 2.5])})
    assert checkpoint.load_release(tmp_path, "histogram")["n"].tolist() == [1.5, 2.5]
    with pytest.raises(InputError, match="does not exist"):
        checkpoint.load_release(tmp_path, "votes")


def test_a_state_of_another_version_is_refused(tmp_path, monkeypatch):
    import json

    dumps = json.dumps
    monkeypatch.setattr(checkpoint.json, "dumps", lambda value, **o: dumps({**value, "epoch": 1}, **o))
    checkpoint.save(tmp_path, sample())
    monkeypatch.undo()
    with pytest.raises(InputError, match="written by another version of sfumato"):
        checkpoint.load(tmp_path)


def test_the_key_is_its_owners_alone_and_a_seeded_run_keeps_none(tmp_path):
    checkpoint.write_key(tmp_path, RandomSource.from_seed(1))
    assert not (tmp_path / checkpoint.KEY).exists()
    source = RandomSource.from_os()
    checkpoint.write_key(tmp_path, source)
    assert (tmp_path / checkpoint.KEY).stat().st_mode & 0o077 == 0
    assert checkpoint.read_key(tmp_path) == source
    (tmp_path / checkpoint.KEY).write_bytes(source.key[:31])
    with pytest.raises(InputError, match="has 31 bytes, not 32"):
        checkpoint.read_key(tmp_path)


def test_a_run_needs_its_key_until_it_is_deleted(tmp_path):
    checkpoint.write_key(tmp_path, RandomSource.from_os())
    assert checkpoint.keeps_key(tmp_path, sample(complete=True))  # a release may follow a loop that is complete
    checkpoint.delete_key(tmp_path)
    assert not checkpoint.keeps_key(tmp_path, sample(complete=True))
    assert checkpoint.keeps_key(tmp_path, sample(complete=False))
    with pytest.raises(InputError, match="its noise cannot be repeated"):
        checkpoint.read_key(tmp_path)
