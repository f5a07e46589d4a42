"""SqueezeNet: torchvision's names and function, its weights in place, and the input convention in front of them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from sfumato import models
from sfumato._check import InputError
from sfumato.models import ImageNetFeatures, imagenet_features, load_pretrained, squeezenet

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
FILE = SHARED / "squeezenet1_0_imagenet.safetensors"
FIRES = (3, 4, 5, 7, 8, 9, 10, 12)


def state(seed=1):
    """A state dict as torchvision names it, with the classifier of a thousand classes."""
    found = squeezenet(None, generator=torch.Generator().manual_seed(seed)).state_dict()
    return {**found, "classifier.1.weight": torch.zeros(1000, 512, 1, 1), "classifier.1.bias": torch.zeros(1000)}


def published(x, tensors):
    """The network of the paper, written down once more from its table."""

    def conv(x, name, **settings):
        return functional.relu(
            functional.conv2d(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"], **settings), inplace=True
        )

    x = functional.max_pool2d(conv(x, "features.0", stride=2), 3, 2, ceil_mode=True)
    for at in FIRES:
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True) if at in (7, 12) else x
        squeezed = conv(x, f"features.{at}.squeeze")
        wide = conv(squeezed, f"features.{at}.expand3x3", padding=1)
        x = torch.cat([conv(squeezed, f"features.{at}.expand1x1"), wide], 1)
    return x.mean((2, 3))


def test_the_features_are_the_published_ones():
    tensors, model = state(), squeezenet(None)
    load_pretrained(model, tensors)
    pictures = torch.randn(2, 3, 70, 65, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(model(pictures), published(pictures, tensors), rtol=1e-4, atol=1e-6)


def test_every_tensor_is_accounted_for():
    model = squeezenet(128)
    report = load_pretrained(model, state())
    assert len(report.names("mapped")) == 50
    assert report.names("dropped") == ("classifier.1.bias", "classifier.1.weight")
    assert report.names("missing") == ("embedding.bias", "embedding.weight")


def test_a_grey_model_takes_the_sum_of_the_colours_and_a_small_stem_drops_the_first_layer():
    grey, small = squeezenet(8, in_channels=1), squeezenet(8, stem="small")
    report = load_pretrained(grey, state(), channels="sum")
    assert report.names("reshaped") == ("features.0.weight",)
    picture = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    colour = squeezenet(None)
    load_pretrained(colour, state())
    with torch.no_grad():
        assert torch.allclose(grey.features(picture).mean((2, 3)), colour(picture.expand(-1, 3, -1, -1)), atol=1e-5)
    dropped = load_pretrained(small, state()).names("dropped")
    assert {"features.0.weight", "features.0.bias"} < set(dropped)


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda s: s.pop("features.5.squeeze.bias"), "lacks features.5.squeeze.bias"),
        (lambda s: s.update({"features.3.squeeze.weight": torch.zeros(8, 96, 1, 1)}), "features.3.squeeze.bias is"),
        (lambda s: s["features.0.bias"].fill_(float("nan")), "features.0.bias holds NaN"),
        (lambda s: s.pop("features.3.squeeze.weight"), "not the names of published weights of a SqueezeNet"),
    ],
)
def test_weights_of_another_network_are_refused(spoil, line):
    tensors = state()
    spoil(tensors)
    with pytest.raises(InputError, match=line):
        load_pretrained(squeezenet(None), tensors)


def test_the_catalogue_builds_it_for_small_and_large_pictures():
    assert models.backbone("squeezenet", embedding_dim=7, input_shape=(28, 28))(torch.zeros(2, 1, 28, 28)).shape == (
        2,
        7,
    )
    assert models.backbone("squeezenet", embedding_dim=7, input_shape=(64, 64, 3)).features[0].kernel_size == (7, 7)


def test_pictures_are_normalised_coloured_and_enlarged():
    network = squeezenet(None, generator=torch.Generator().manual_seed(1))
    seen = []
    network.features.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    features = ImageNetFeatures(network)
    features(torch.full((1, 1, 20, 40), -1.0))
    features(torch.full((1, 3, 64, 80), 1.0))
    black, white = seen
    assert black.shape == (1, 3, 64, 128)
    assert white.shape == (1, 3, 64, 80)
    assert torch.allclose(black[0, :, 0, 0], -torch.tensor([0.485 / 0.229, 0.456 / 0.224, 0.406 / 0.225]))
    assert torch.allclose(white[0, :, 0, 0], torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]))
    with pytest.raises(InputError, match="read pictures"):
        features(torch.zeros(1, 4, 64, 64))


@pytest.mark.shared
@pytest.mark.skipif(not FILE.exists(), reason="needs ../shared/data")
def test_the_shared_weights_are_loaded_and_frozen():
    features = imagenet_features(FILE)
    assert not any(parameter.requires_grad for parameter in features.parameters())
    picture = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    normalised = ((picture + 1) / 2 - features.colours.mean) / features.colours.deviation
    assert torch.allclose(features(picture), published(normalised, load_file(FILE)), rtol=1e-4, atol=1e-5)
