"""MobileFaceNet: its published weights in place and named, its function on real faces, and refusals."""

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from sfumato import data
from sfumato._check import InputError
from sfumato.models import load_pretrained, mobilefacenet

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
FILE = SHARED / "mobilefacenet.safetensors"
BOX = (10.5, 3.5, 101.5, 94.5)  # of a picture of lfw_112.parquet, what these weights expect


def state(model, seed=1):
    """A state dict as the published file names it, with slopes that are not PReLU's own first ones."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(value.shape, generator=generator) / 10 for name, value in model.state_dict().items()}
    return {name.replace("_prelu.weight", ".prelu").replace("last", "head"): value for name, value in tensors.items()}


def test_every_tensor_of_the_file_has_its_place():
    model = mobilefacenet()
    report = load_pretrained(model, tensors := state(model))
    assert len(report.names("mapped")) == len(tensors) == 133
    assert not report.names("missing")
    assert not report.names("dropped")
    assert torch.equal(model.get_parameter("blocks.3.expand_prelu.weight"), tensors["blocks.3.expand.prelu"])
    assert torch.equal(model.embedding.weight, tensors["embedding.weight"])


def test_an_embedding_of_other_dimensions_is_new():
    model = mobilefacenet(32)
    report = load_pretrained(model, state(mobilefacenet()))
    assert report.names("dropped") == ("embedding.bias", "embedding.weight")
    assert report.names("missing") == ("embedding.bias", "embedding.weight")
    assert "the file's embedding has 128 dimensions" in report.text()


def test_pixels_reach_the_network_as_the_weights_expect_them():
    model = mobilefacenet(8, image_size=(32, 48))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), np.uint8)
    given = []
    model.stem.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    model(data.to_tensor(pixels))
    wanted = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - 127.5) / 128
    assert torch.equal(given[0], wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("blocks.2.expand.prelu"), "lacks blocks.2.expand.prelu"),
        (lambda found: found.update({"stem.prelu": torch.zeros(3)}), "stem.prelu is .3."),
        (lambda found: found.update({"head.bias": torch.full((512,), float("nan"))}), "NaN or infinity"),
        (lambda found: found.pop("head_depthwise.weight"), "not the names of published weights of a MobileFaceNet"),
    ],
)
def test_damaged_files_and_those_of_other_networks_leave_the_model_as_it_was(change, message):
    model, tensors = mobilefacenet(), state(mobilefacenet())
    change(tensors)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(InputError, match=message):
        load_pretrained(model, tensors)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters()))


@pytest.mark.parametrize("size", [(112, 92), (56, 56)])
def test_weights_for_pictures_of_another_size_name_it_and_the_remedy(size):
    message = rf"spans 7x7 places.*for pictures of {size[0]}x{size[1]} pixels.*112x112.*--size 112"
    with pytest.raises(InputError, match=message):
        load_pretrained(mobilefacenet(image_size=size), state(mobilefacenet()))


def test_pictures_of_another_size_are_refused():
    with pytest.raises(InputError, match="reads pictures of 112x112 pixels, got 112x96"):
        mobilefacenet()(torch.zeros(1, 3, 112, 96))


@pytest.mark.shared
def test_the_published_weights_tell_people_of_lfw_apart(shared):
    model = mobilefacenet()
    report = load_pretrained(model, FILE)
    assert len(report.names("mapped")) == len(load_file(FILE))
    model.eval()
    assert all(
        isinstance(layer, nn.Conv2d | nn.Linear | nn.PReLU) for layer in model.modules() if not [*layer.children()]
    )
    table = parquet.read_table(shared / "lfw_112.parquet", columns=["person", "number"])
    place = {key: at for at, key in enumerate(zip(*(table[name].to_pylist() for name in ("person", "number"))))}
    lines = [line.split("\t") for line in (shared / "lfw_pairs.txt").read_text().splitlines()[1:601]]
    same = [((a, int(i)), (a, int(j))) for a, i, j in lines[:300:3]]
    apart = [((a, int(i)), (b, int(j))) for a, i, b, j in lines[300::3]]
    wanted = sorted({place[key] for pair in same + apart for key in pair})
    pictures = parquet.read_table(shared / "lfw_112.parquet", columns=["image"])["image"].take(wanted).to_pylist()
    faces = [Image.open(io.BytesIO(each["bytes"])).convert("RGB").resize((112, 112), box=BOX) for each in pictures]
    with torch.inference_mode():
        found = functional.normalize(model(data.to_tensor(np.stack([np.asarray(face) for face in faces]))))
    row = {at: found[number] for number, at in enumerate(wanted)}
    cosine = np.array([float(row[place[a]] @ row[place[b]]) for a, b in same + apart])
    told = cosine > 0.25  # the published threshold
    assert (told == (np.arange(200) < 100)).mean() >= 0.95  # published: .978 on all ten folds
