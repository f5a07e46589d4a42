"""Files of weights."""

import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sfumato import models
from sfumato._check import InputError


@pytest.fixture
def saved(tmp_path):
    model = models.lenet(8)
    models.save_weights(model, tmp_path / "model.safetensors", metadata={"model": "lenet", "embedding_dim": 8})
    return model, tmp_path / "model.safetensors"


def test_weights_and_metadata_come_back(saved):
    model, path = saved
    other = models.lenet(8)
    assert models.load_weights(other, path) == {"model": "lenet", "embedding_dim": 8}
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    assert models.read_metadata(path)["model"] == "lenet"


def test_equal_weights_give_equal_bytes(tmp_path):
    model = models.resnet20(8)
    metadata = {str(i): i for i in range(20)}
    for name in ("a", "b"):
        models.save_weights(model, tmp_path / name, metadata=metadata)
        metadata = dict(reversed(metadata.items()))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_any_module_with_buffers_and_tied_weights_is_saved_whole(tmp_path):
    def build():
        model = nn.Sequential(nn.Embedding(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 5))
        model[2].weight = model[0].weight
        return model

    first, second = build(), build()
    first[1].running_mean.fill_(3)
    models.save_weights(first, tmp_path / "w.safetensors")
    models.load_weights(second, tmp_path / "w.safetensors")
    assert torch.equal(first[2].weight, second[2].weight)
    assert second[2].weight is second[0].weight
    assert torch.equal(second[1].running_mean, torch.full((4,), 3.0))


@pytest.mark.parametrize("build", [lambda: models.lenet(9), lambda: models.resnet20(8, 1), lambda: nn.Linear(2, 2)])
def test_weights_of_another_model_are_refused_and_leave_it_as_it_was(saved, build):
    other = build()
    before = [parameter.clone() for parameter in other.parameters()]
    with pytest.raises(InputError, match="weights of another model") as error:
        models.load_weights(other, saved[1])
    assert "\n" not in str(error.value)
    assert all(torch.equal(a, b) for a, b in zip(before, other.parameters()))


def test_a_cut_off_file_is_one_clear_line(saved):
    _, path = saved
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="not readable as weights") as error:
        models.load_weights(models.lenet(8), path)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        models.load_weights(models.lenet(8), tmp_path / "none.safetensors")


def test_a_file_from_elsewhere_has_no_metadata(tmp_path):
    layer = nn.Linear(2, 2)
    save_file(layer.state_dict(), tmp_path / "x.safetensors", metadata={"format": "pt"})
    assert models.load_weights(nn.Linear(2, 2), tmp_path / "x.safetensors") == {}


class Bomb:
    """Unpickling this would create a file."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


@pytest.mark.parametrize("plain", [True, False])
def test_a_pickle_never_runs(tmp_path, plain):
    path, target = tmp_path / "weights.pth", tmp_path / "exploded"
    content = {"conv1.weight": Bomb(target)}
    if plain:
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path)
    with pytest.raises(InputError) as error:
        models.load_pretrained(models.resnet18(), path)
    assert "\n" not in str(error.value)
    assert not target.exists()


def test_files_without_tensors_and_noise_are_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    with pytest.raises(InputError, match="holds no named tensors"):
        models.load_pretrained(models.resnet18(), tmp_path / "empty.pth")
    (tmp_path / "noise.pth").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(InputError, match="no file of weights"):
        models.load_pretrained(models.resnet18(), tmp_path / "noise.pth")


@pytest.mark.parametrize("name", ["weights.json", "weights.npz", "weights.pth"])
def test_a_file_of_another_kind_is_told_so(name, tmp_path):
    path = tmp_path / name
    np.savez(tmp_path / "weights.npz", weight=np.zeros(3))
    (tmp_path / "weights.json").write_text("{}")
    (tmp_path / "weights.pth").write_text("a page instead of the file")
    with pytest.raises(InputError, match=r"no file of weights: give a \.safetensors file, or a state_dict"):
        models.load_pretrained(models.resnet18(), path)


def test_a_torch_file_that_is_cut_off_is_told_as_damaged(tmp_path):
    torch.save(models.lenet().state_dict(), tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:-500])
    with pytest.raises(InputError, match="not readable as weights"):
        models.load_pretrained(models.resnet18(), tmp_path / "cut.pt")
