"""Published weights: names as the libraries have them, folding exact, every tensor accounted for; files of weights."""

import hashlib
import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from sfumato import data, models
from sfumato._check import InputError
from sfumato.models import ImageNetFeatures, imagenet_features, load_pretrained, mobilefacenet, squeezenet

# Published weights: names as the libraries have them, folding exact, every tensor accounted for.

# Batch-norm networks with torchvision's and timm's names, written out again for the tests.
#
# `DIGESTS` come from the libraries themselves (torchvision 0.29.2, timm 1.0.31): SHA-256 of the sorted lines "name
# [shape]" of the state dict, so that the networks here cannot drift from the published files.

DIGESTS = {
    "resnet18": "867b8d8ae95f5a28c42c5b8a8409d5869ea42922a87e779dc263f79d0c746ff2",
    "resnet50": "2d5b8870b35e15302b693633772b7dd09604c71f966194756edea01b1c1ca347",
    "mobilenet_v2": "b37e2a9130e6341bc6158c07707da3e63bbde46fdbffb1ff4d42ea45ff281e7e",
    "mobilenetv2_100": "5add8b2fa5d04e5aac7cd50996291a5e7f381c34d3b23594471d2e9696a652f7",
}


def digest(state):
    lines = sorted(f"{name} {list(tensor.shape)}" for name, tensor in state.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class Block(nn.Module):
    def __init__(self, inputs, width, stride, deep):
        super().__init__()
        outputs = width * 4 if deep else width
        kernels = [(1, 1), (3, stride), (1, 1)] if deep else [(3, stride), (3, 1)]
        at = inputs
        for i, (kernel, step) in enumerate(kernels, 1):
            to = outputs if i == len(kernels) else width
            setattr(self, f"conv{i}", nn.Conv2d(at, to, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(to))
            at = to
        self.count = len(kernels)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = x
        for i in range(1, self.count + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            out = out if i == self.count else functional.relu(out)
        return functional.relu(out + (x if self.downsample is None else self.downsample(x)))


class BatchNormResNet(nn.Module):
    def __init__(self, depths, deep):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        at = 64
        for stage, depth in enumerate(depths):
            blocks = []
            for i in range(depth):
                blocks.append(Block(at, 64 << stage, 2 if stage and not i else 1, deep))
                at = (64 << stage) * (4 if deep else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(at, 1000)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))


def conv_bn(inputs, outputs, kernel, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


class Inverted(nn.Module):
    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        wide = inputs * expansion
        first = [conv_bn(inputs, wide, 1)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *first,
            conv_bn(wide, wide, 3, stride, wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.same = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.same else self.conv(x)


# expansion, channels, repeats, stride
MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class BatchNormMobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        blocks, at = [conv_bn(3, 32, 3, 2)], 32
        for expansion, channels, repeats, stride in MOBILENET_STAGES:
            for i in range(repeats):
                blocks.append(Inverted(at, channels, stride if i == 0 else 1, expansion))
                at = channels
        self.features = nn.Sequential(*blocks, conv_bn(at, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x):
        return self.features(x).mean((2, 3))


def timm_names(state):
    """The torchvision MobileNetV2's state dict under timm's names: the same tensors in the same order."""
    layers = ["conv_stem", "bn1"]
    for stage, repeats in enumerate((1, 2, 3, 4, 3, 3, 1)):
        parts = ["conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3"]
        parts = ["conv_dw", "bn1", "conv_pw", "bn2"] if stage == 0 else parts
        layers += [f"blocks.{stage}.{i}.{part}" for i in range(repeats) for part in parts]
    layers += ["conv_head", "bn2", "classifier"]
    theirs = list(dict.fromkeys(name.rpartition(".")[0] for name in state))
    new = dict(zip(theirs, layers, strict=True))
    return {f"{new[n.rpartition('.')[0]]}.{n.rpartition('.')[2]}": value for n, value in state.items()}


def trained_looking(model, seed=0):
    """Random statistics, scales and offsets, so that every tensor of batch norm matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.weight.uniform_(0.4, 1.2, generator=generator)
                layer.bias.normal_(0, 0.2, generator=generator)
                layer.running_mean.normal_(0, 0.3, generator=generator)
                layer.running_var.uniform_(0.3, 2, generator=generator)
    return model.eval()


# Published weights: names as the libraries have them, folding exact, every tensor accounted for.

NETWORKS = {
    "resnet18": (lambda: BatchNormResNet((2, 2, 2, 2), False), models.resnet18, 122),
    "resnet50": (lambda: BatchNormResNet((3, 4, 6, 3), True), models.resnet50, 320),
    "mobilenet_v2": (BatchNormMobileNet, models.mobilenet_v2, 314),
    "mobilenetv2_100": (BatchNormMobileNet, models.mobilenet_v2, 314),
}


def network(name):
    reference = trained_looking(NETWORKS[name][0]())
    state = reference.state_dict()
    return reference, timm_names(state) if name == "mobilenetv2_100" else state, NETWORKS[name][1]


@pytest.fixture(scope="module")
def resnet18():
    return network("resnet18")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_of_this_test_have_the_libraries_names_and_shapes(name):
    state = network(name)[1]
    assert len(state) == NETWORKS[name][2]
    assert digest(state) == DIGESTS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_folding_keeps_the_published_function(name):
    reference, state, build = network(name)
    model = build(1000, normalisation="none")
    report = models.load_pretrained(model, state, batch_norm="fold")
    with torch.no_grad():
        model.embedding.weight.zero_()[: model.embedding.in_features].fill_diagonal_(1)
        model.embedding.bias.zero_()
        images = torch.randn(2, 3, 40, 40, generator=torch.Generator().manual_seed(1))
        expected = reference(images)[:, :1000]
        got = model(images)[:, : expected.shape[1]]
    assert torch.allclose(got, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert expected.std() > 1e-3
    assert report.names("missing") == ("embedding.bias", "embedding.weight")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch_norm", ["fold", "replace"])
def test_every_tensor_of_file_and_model_is_in_the_report(name, batch_norm):
    _, state, build = network(name)
    model = build(normalisation="none" if batch_norm == "fold" else "group")
    report = models.load_pretrained(model, state, batch_norm=batch_norm)
    missing = set(report.names("missing"))
    in_file = [entry.name for entry in report.entries if entry.action != "missing"]
    assert sorted(in_file) == sorted(state)
    targets = {entry.target for entry in report.entries if entry.target}
    assert targets | missing == set(model.state_dict())
    assert not targets & missing
    classifier = {name for name in state if name.startswith(("fc", "classifier"))}
    assert classifier <= set(report.names("dropped"))


def test_replacing_carries_scales_and_offsets_and_takes_deviations_into_the_convolutions(resnet18):
    _, state, build = resnet18
    model = build()
    models.load_pretrained(model, state)
    own = model.state_dict()
    assert torch.equal(own["layer2.0.downsample.1.weight"], state["layer2.0.downsample.1.weight"])
    assert torch.equal(own["layer3.1.norm2.bias"], state["layer3.1.bn2.bias"])
    deviation = (state["layer3.1.bn2.running_var"] + 1e-5).sqrt()[:, None, None, None]
    assert torch.allclose(own["layer3.1.conv2.weight"], state["layer3.1.conv2.weight"] / deviation)


def test_a_replaced_channel_enters_its_group_on_the_scale_of_batch_norm(resnet18):
    """Convolutions whose channels differ only in scale, undone by the statistics, give one and the same model."""
    _, state, build = resnet18
    scales = torch.rand(64, generator=torch.Generator().manual_seed(2)) * 9 + 1
    scaled = dict(state)
    scaled["layer1.0.conv1.weight"] = state["layer1.0.conv1.weight"] * scales[:, None, None, None]
    scaled["layer1.0.bn1.running_var"] = (state["layer1.0.bn1.running_var"] + 1e-5) * scales**2 - 1e-5
    first, second = build(), build()
    models.load_pretrained(first, state)
    models.load_pretrained(second, scaled)
    assert torch.allclose(first.layer1[0].conv1.weight, second.layer1[0].conv1.weight, rtol=1e-5)


def test_summed_channels_answer_to_grey_as_the_colour_model_to_grey_in_colour(resnet18):
    _, state, build = resnet18
    colour, grey = build(9, normalisation="none"), build(9, 1, normalisation="none")
    models.load_pretrained(colour, state, batch_norm="fold")
    report = models.load_pretrained(grey, state, batch_norm="fold", channels="sum")
    grey.embedding.load_state_dict(colour.embedding.state_dict())
    image = torch.randn(1, 1, 32, 32)
    with torch.no_grad():
        assert torch.allclose(grey(image), colour(image.expand(1, 3, 32, 32)), rtol=1e-3, atol=1e-4)
    assert report.names("reshaped") == ("conv1.weight",)


def test_a_small_stem_drops_the_first_layer_and_says_so(resnet18):
    _, state, build = resnet18
    model = build(stem="small")
    before = model.conv1.weight.clone()
    report = models.load_pretrained(model, state)
    assert torch.equal(model.conv1.weight, before)
    assert "conv1.weight" in report.names("dropped")
    assert "conv1.weight" in report.names("missing")
    assert "7x7 in the file, 3x3 in a small stem" in report.text()


def test_safetensors_and_torch_files_load_similar(resnet18, tmp_path):
    _, state, build = resnet18
    save_file({name: value.clone() for name, value in state.items()}, tmp_path / "a.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "a.pth")
    first, second = build(generator=torch.Generator().manual_seed(0)), build(generator=torch.Generator().manual_seed(0))
    models.load_pretrained(first, tmp_path / "a.safetensors")
    models.load_pretrained(second, str(tmp_path / "a.pth"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))


def test_the_report_reads_as_a_table(resnet18):
    _, state, build = resnet18
    report = models.load_pretrained(build(), state)
    text = report.text()
    assert "names of torchvision or timm, batch norm: replace" in text
    assert "classifier of the file's labels" in text
    assert "not in the file, keeps its initial value" in text
    assert len(text.splitlines()) < 12
    assert all(len(line) < 200 for line in text.splitlines())
    full = report.text(full=True)
    assert "layer1.0.bn1.weight -> layer1.0.norm1.weight" in full
    assert len(full.splitlines()) == 2 + len(report.entries)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("layer1.0.conv1.weight"), r"lacks layer1.0.conv1.weight"),
        (lambda s: s.update({"layer1.2.conv1.weight": torch.ones(2)}), r"also has layer1.2.conv1.weight"),
        (lambda s: s.update({"layer1.0.conv1.weight": torch.ones(16, 64, 3, 3)}), "damaged"),
        (lambda s: s["bn1.weight"].fill_(float("nan")), "bn1.weight holds NaN"),
        (lambda s: (s.pop("bn1.weight"), s.pop("conv1.weight")), "must hold published weights"),
    ],
)
def test_files_of_other_networks_and_damaged_ones_leave_the_model_as_it_was(resnet18, change, message):
    state = {name: value.clone() for name, value in resnet18[1].items()}
    change(state)
    model = models.resnet18()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(InputError, match=message) as error:
        models.load_pretrained(model, state)
    assert "\n" not in str(error.value)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_mismatched_requests_are_one_clear_line(resnet18):
    _, state, build = resnet18
    with pytest.raises(InputError, match=r"lacks layer1.0.conv3.weight"):
        models.load_pretrained(models.resnet50(), state)
    with pytest.raises(InputError, match="reads 3 channels, the model 1; channels="):
        models.load_pretrained(build(in_channels=1), state)
    with pytest.raises(InputError, match="reads 3 channels, the model 4"):
        models.load_pretrained(build(in_channels=4), state, channels="sum")
    with pytest.raises(InputError, match='build the model with normalisation="none"'):
        models.load_pretrained(build(), state, batch_norm="fold")
    with pytest.raises(InputError, match='build the model with normalisation="group"'):
        models.load_pretrained(build(normalisation="none"), state, batch_norm="replace")
    with pytest.raises(InputError, match="got LeNet"):
        models.load_pretrained(models.lenet(), state)
    with pytest.raises(InputError, match="batch_norm must be one of"):
        models.load_pretrained(build(), state, batch_norm="keep")


def test_the_note_on_colours_says_what_to_do_about_them(resnet18):
    _, state, build = resnet18
    note = next(line for line in models.load_pretrained(build(), state).text().splitlines() if "colours" in line)
    assert "train the first layer, too (--trainable with first), or begin with models.ImageNetColours" in note


# SqueezeNet: torchvision's names and function, its weights in place, and the input convention in front of them.

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
SQUEEZENET = SHARED / "squeezenet1_0_imagenet.safetensors"
FIRES = (3, 4, 5, 7, 8, 9, 10, 12)


def squeezenet_state(seed=1):
    """A state dict as torchvision names it, with the classifier of a thousand classes."""
    found = squeezenet(None, generator=torch.Generator().manual_seed(seed)).state_dict()
    return {**found, "classifier.1.weight": torch.zeros(1000, 512, 1, 1), "classifier.1.bias": torch.zeros(1000)}


def of_the_paper(x, tensors):
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
    tensors, model = squeezenet_state(), squeezenet(None)
    load_pretrained(model, tensors)
    pictures = torch.randn(2, 3, 70, 65, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(model(pictures), of_the_paper(pictures, tensors), rtol=1e-4, atol=1e-6)


def test_every_tensor_is_accounted_for():
    model = squeezenet(128)
    report = load_pretrained(model, squeezenet_state())
    assert len(report.names("mapped")) == 50
    assert report.names("dropped") == ("classifier.1.bias", "classifier.1.weight")
    assert report.names("missing") == ("embedding.bias", "embedding.weight")


def test_a_grey_model_takes_the_sum_of_the_colours_and_a_small_stem_drops_the_first_layer():
    grey, small = squeezenet(8, in_channels=1), squeezenet(8, stem="small")
    report = load_pretrained(grey, squeezenet_state(), channels="sum")
    assert report.names("reshaped") == ("features.0.weight",)
    picture = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    colour = squeezenet(None)
    load_pretrained(colour, squeezenet_state())
    with torch.no_grad():
        assert torch.allclose(grey.features(picture).mean((2, 3)), colour(picture.expand(-1, 3, -1, -1)), atol=1e-5)
    dropped = load_pretrained(small, squeezenet_state()).names("dropped")
    assert {"features.0.weight", "features.0.bias"} < set(dropped)


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda s: s.pop("features.5.squeeze.bias"), "lacks features.5.squeeze.bias"),
        (lambda s: s.update({"features.3.squeeze.weight": torch.zeros(8, 96, 1, 1)}), "features.3.squeeze.bias is"),
        (lambda s: s["features.0.bias"].fill_(float("nan")), "features.0.bias holds NaN"),
        (lambda s: s.pop("features.3.squeeze.weight"), "must hold published weights of a SqueezeNet"),
    ],
)
def test_weights_of_another_network_are_refused(spoil, line):
    tensors = squeezenet_state()
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
@pytest.mark.skipif(not SQUEEZENET.exists(), reason="needs ../shared/data")
def test_the_shared_weights_are_loaded_and_frozen():
    features = imagenet_features(SQUEEZENET)
    assert not any(parameter.requires_grad for parameter in features.parameters())
    picture = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)) * 2 - 1
    normalised = ((picture + 1) / 2 - features.colours.mean) / features.colours.deviation
    assert torch.allclose(features(picture), of_the_paper(normalised, load_file(SQUEEZENET)), rtol=1e-4, atol=1e-5)


# MobileFaceNet: its published weights in place and named, its function on real faces, and refusals.

FILE = SHARED / "mobilefacenet.safetensors"
BOX = (10.5, 3.5, 101.5, 94.5)  # of a picture of lfw_112.parquet, what these weights expect


def mobilefacenet_state(model, seed=1):
    """A state dict as the published file names it, with slopes that are not PReLU's own first ones."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(value.shape, generator=generator) / 10 for name, value in model.state_dict().items()}
    return {name.replace("_prelu.weight", ".prelu").replace("last", "head"): value for name, value in tensors.items()}


def test_every_tensor_of_the_file_has_its_place():
    model = mobilefacenet()
    report = load_pretrained(model, tensors := mobilefacenet_state(model))
    assert len(report.names("mapped")) == len(tensors) == 133
    assert not report.names("missing")
    assert not report.names("dropped")
    assert torch.equal(model.get_parameter("blocks.3.expand_prelu.weight"), tensors["blocks.3.expand.prelu"])
    assert torch.equal(model.embedding.weight, tensors["embedding.weight"])


def test_an_embedding_of_other_dimensions_is_new():
    model = mobilefacenet(32)
    report = load_pretrained(model, mobilefacenet_state(mobilefacenet()))
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
        (lambda found: found.pop("head_depthwise.weight"), "must hold published weights of a MobileFaceNet"),
    ],
)
def test_damaged_files_and_those_of_other_networks_leave_the_model_as_it_was(change, message):
    model, tensors = mobilefacenet(), mobilefacenet_state(mobilefacenet())
    change(tensors)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(InputError, match=message):
        load_pretrained(model, tensors)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters()))


@pytest.mark.parametrize("size", [(112, 92), (56, 56)])
def test_weights_for_pictures_of_another_size_name_it_and_the_remedy(size):
    message = rf"spans 7x7 places.*for {size[0]}x{size[1]} pixels.*112x112.*--size 112"
    with pytest.raises(InputError, match=message):
        load_pretrained(mobilefacenet(image_size=size), mobilefacenet_state(mobilefacenet()))


def test_pictures_of_another_size_are_refused():
    with pytest.raises(InputError, match="reads pictures of 112x112 pixels, got 112x96"):
        mobilefacenet()(torch.zeros(1, 3, 112, 96))


@pytest.mark.slow
@pytest.mark.shared
def test_the_published_weights_report_people_of_lfw_separate(shared):
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


# Files of weights.


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
    with pytest.raises(InputError, match="not a file of weights"):
        models.load_pretrained(models.resnet18(), tmp_path / "noise.pth")


@pytest.mark.parametrize("name", ["weights.json", "weights.npz", "weights.pth"])
def test_a_file_of_another_kind_is_reported_so(name, tmp_path):
    path = tmp_path / name
    np.savez(tmp_path / "weights.npz", weight=np.zeros(3))
    (tmp_path / "weights.json").write_text("{}")
    (tmp_path / "weights.pth").write_text("a page instead of the file")
    with pytest.raises(InputError, match=r"not a file of weights; give a \.safetensors file, or a state_dict"):
        models.load_pretrained(models.resnet18(), path)


def test_a_torch_file_that_is_cut_off_is_reported_as_damaged(tmp_path):
    torch.save(models.lenet().state_dict(), tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:-500])
    with pytest.raises(InputError, match="not readable as weights"):
        models.load_pretrained(models.resnet18(), tmp_path / "cut.pt")
