"""Published weights: names as the libraries have them, folding exact, every tensor accounted for."""

import importlib.util
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sfumato import models
from sfumato._check import InputError

_spec = importlib.util.spec_from_file_location("published", Path(__file__).with_name("published.py"))
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)

NETWORKS = {
    "resnet18": (lambda: published.BatchNormResNet((2, 2, 2, 2), False), models.resnet18, 122),
    "resnet50": (lambda: published.BatchNormResNet((3, 4, 6, 3), True), models.resnet50, 320),
    "mobilenet_v2": (published.BatchNormMobileNet, models.mobilenet_v2, 314),
    "mobilenetv2_100": (published.BatchNormMobileNet, models.mobilenet_v2, 314),
}


def network(name):
    reference = published.trained_looking(NETWORKS[name][0]())
    state = reference.state_dict()
    return reference, published.timm_names(state) if name == "mobilenetv2_100" else state, NETWORKS[name][1]


@pytest.fixture(scope="module")
def resnet18():
    return network("resnet18")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_of_this_test_have_the_libraries_names_and_shapes(name):
    state = network(name)[1]
    assert len(state) == NETWORKS[name][2]
    assert published.digest(state) == published.DIGESTS[name]


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


def test_safetensors_and_torch_files_load_alike(resnet18, tmp_path):
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
        (lambda s: (s.pop("bn1.weight"), s.pop("conv1.weight")), "not the names of published weights"),
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
    with pytest.raises(InputError, match="not to LeNet"):
        models.load_pretrained(models.lenet(), state)
    with pytest.raises(InputError, match="batch_norm must be one of"):
        models.load_pretrained(build(), state, batch_norm="keep")


def test_the_note_on_colours_says_what_to_do_about_them(resnet18):
    _, state, build = resnet18
    note = next(line for line in models.load_pretrained(build(), state).text().splitlines() if "colours" in line)
    assert "train the first layer, too (--trainable with first), or begin with models.ImageNetColours" in note
