"""Published weights: which layer is which in the files of other libraries, and how they are loaded.

Which layer of a backbone is which layer in torchvision's and timm's state dicts, and in MobileFaceNet's.

Both libraries give the layers of their ResNets the same names. Their MobileNetV2 files differ. Every convolution comes
with its norm, in SqueezeNet and MobileFaceNet with a bias and no norm, in the latter mostly with slopes of a PReLU.
The last dense layer (the classifier of the file's own labels) has no counterpart here; MobileFaceNet's is the
embedding, and is taken where it has the model's dimensions.

Published weights (torchvision, timm) in a backbone without batch norm, with a report of every tensor.

A published network normalises with running statistics of its own training data: mean m, variance v, scale g and
offset b per channel. Private training cannot keep batch norm, because it couples examples. Two ways out:

- `batch_norm="fold"`: the network computes exactly what the published one computes in evaluation mode. Each
  convolution W becomes W g / sqrt(v + eps) with bias b - m g / sqrt(v + eps); the backbone is built with
  `normalisation="none"`. There is no norm layer left to train.
- `batch_norm="replace"`: group norm takes batch norm's place, for the backbones as the papers train them. g and
  b become group norm's scale and offset. Each convolution is divided by sqrt(v + eps), so that every channel
  enters its group on the scale that batch norm gave it; m has no place and is dropped. The network is a good
  start, not the same function.

SqueezeNet has no norm layer: its convolutions and biases are taken as they are, and `batch_norm` says nothing. So it is
with MobileFaceNet, whose published file has batch norm folded in already.

The dense layer to the embedding is new, but for a MobileFaceNet of 128 dimensions; the file's classifier is dropped.
Published networks expect colours normalised by ImageNet's mean and standard deviation, sfumato feeds [-1, 1); the
report says so. The pretraining data are not covered by the guarantee of a private run: use weights from public data
only.

References:
    Xu et al. (2022), arXiv 2211.10844; Kurakin et al. (2022), arXiv 2201.12328: private training from public
    weights with group norm.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from sfumato._check import InputError, one_of
from sfumato.models.mobile_facenet import MobileFaceNet
from sfumato.models.mobilenet import STAGES, MobileNetV2
from sfumato.models.resnet import ResNet
from sfumato.models.squeeze_net import SqueezeNet
from sfumato.models.weights import read_tensors, some

_FACE_DIMENSIONS = 128  # of the published MobileFaceNet


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One convolution, its norm and its slopes: names here and in the file; an empty name where there are none."""

    conv: str
    norm: str = ""
    slopes: str = ""
    file_conv: str
    file_norm: str = ""
    file_slopes: str = ""


@dataclass(frozen=True, kw_only=True)
class Naming:
    """The convention of a file and the layers in the order of the forward pass."""

    origin: str
    layers: tuple[Layer, ...]
    classifier: str
    why_dropped: str = "classifier of the file's labels"
    pixels: str = (
        "published weights expect colours normalised by ImageNet's mean and std, sfumato feeds [-1, 1); train the "
        "first layer, too (--trainable with first), or begin with models.ImageNetColours"
    )


def naming(model: nn.Module, names: Collection[str], where: str) -> Naming:
    """Recognise a file by its names.

    Args:
        model: a `ResNet`, a `MobileNetV2`, a `SqueezeNet` or a `MobileFaceNet`.
        names: the names in the file.
        where: what to call the file in a message.

    Raises:
        InputError: no published network of this kind has such names.
    """
    if isinstance(model, ResNet):
        if "conv1.weight" in names and "bn1.weight" in names:
            return Naming(origin="torchvision or timm", layers=_resnet(model), classifier="fc")
    elif isinstance(model, MobileNetV2):
        if "features.0.0.weight" in names:
            return Naming(origin="torchvision", layers=_mobilenet_torchvision(), classifier="classifier.1")
        if "conv_stem.weight" in names:
            return Naming(origin="timm", layers=_mobilenet_timm(), classifier="classifier")
    elif isinstance(model, SqueezeNet):
        if "features.3.squeeze.weight" in names:
            return Naming(origin="torchvision", layers=_squeezenet(model), classifier="classifier.1")
    elif isinstance(model, MobileFaceNet):
        if "head_depthwise.weight" in names and "stem.prelu" in names:
            return _mobilefacenet(model)
    else:
        raise InputError(
            "published weights fit a ResNet, MobileNetV2, SqueezeNet or MobileFaceNet, got "
            f"{type(model).__name__}; leave the weights out, or give the model.safetensors of a run of "
            "sfumato"
        )
    raise InputError(
        f"{where} must hold published weights of a {type(model).__name__} or be the model.safetensors of "
        f"a run of sfumato (load_weights in Python), got the names {some(sorted(names))}"
    )


def _resnet(model: ResNet) -> tuple[Layer, ...]:
    layers = []
    for conv, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            parent, _, last = conv.rpartition(".")
            norm = f"{parent}.1" if last == "0" else conv.replace("conv", "norm")
            layers.append(Layer(conv=conv, norm=norm, file_conv=conv, file_norm=norm.replace("norm", "bn")))
    return tuple(layers)


def _squeezenet(model: SqueezeNet) -> tuple[Layer, ...]:
    names = (name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d))
    return tuple(Layer(conv=name, file_conv=name) for name in names)


def _mobilefacenet(model: MobileFaceNet) -> Naming:
    modules = dict(model.named_modules())
    layers = [
        Layer(
            conv=name,
            slopes=f"{name}_prelu" if f"{name}_prelu" in modules else "",
            file_conv=in_file,
            file_slopes=f"{in_file}.prelu" if f"{name}_prelu" in modules else "",
        )
        for name, layer in modules.items()
        if isinstance(layer, nn.Conv2d)
        for in_file in [name.replace("last", "head")]
    ]
    if model.embedding.out_features == _FACE_DIMENSIONS:
        layers.append(Layer(conv="embedding", file_conv="embedding"))
    return Naming(
        origin="MobileFaceNet with folded batch norm",
        layers=tuple(layers),
        classifier="embedding",
        why_dropped=f"the file's embedding has {_FACE_DIMENSIONS} dimensions",
        pixels="the weights are for faces that fill a picture of 112x112 pixels",
    )


def _mobilenet(file_names: list[tuple[str, str]]) -> tuple[Layer, ...]:
    convolutions = ["first"]
    at = 0
    for expansion, _, count, _ in STAGES:
        for _ in range(count):
            parts = ("expand", "depthwise", "project") if expansion != 1 else ("depthwise", "project")
            convolutions += [f"blocks.{at}.{part}" for part in parts]
            at += 1
    convolutions.append("last")
    return tuple(
        Layer(conv=conv, norm=f"{conv}_norm", file_conv=file_conv, file_norm=file_norm)
        for conv, (file_conv, file_norm) in zip(convolutions, file_names, strict=True)
    )


def _mobilenet_torchvision() -> tuple[Layer, ...]:
    names = [("features.0.0", "features.0.1")]
    at = 1
    for expansion, _, count, _ in STAGES:
        for _ in range(count):
            block = f"features.{at}.conv"
            activated = 2 if expansion != 1 else 1
            names += [(f"{block}.{i}.0", f"{block}.{i}.1") for i in range(activated)]
            names.append((f"{block}.{activated}", f"{block}.{activated + 1}"))
            at += 1
    return _mobilenet([*names, (f"features.{at}.0", f"features.{at}.1")])


def _mobilenet_timm() -> tuple[Layer, ...]:
    names = [("conv_stem", "bn1")]
    for stage, (expansion, _, count, _) in enumerate(STAGES):
        parts = ("conv_pw", "conv_dw", "conv_pwl") if expansion != 1 else ("conv_dw", "conv_pw")
        for at in range(count):
            block = f"blocks.{stage}.{at}"
            names += [(f"{block}.{part}", f"{block}.bn{i + 1}") for i, part in enumerate(parts)]
    return _mobilenet([*names, ("conv_head", "bn2")])


Action = Literal["mapped", "reshaped", "folded", "dropped", "missing"]

_EPS = 1e-5  # batch norm's eps in torchvision's ResNet and MobileNetV2 and in timm's counterparts
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What became of one tensor."""

    action: Action
    name: str
    """Name in the file; for "missing" the name in the model."""
    target: str = ""
    """Name in the model that it went to."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What `load_pretrained` did with each tensor of the file and each tensor of the model."""

    source: str
    origin: str
    """Whose names the file has."""
    batch_norm: str
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]

    def names(self, action: Action) -> tuple[str, ...]:
        """Names of the tensors with this fate."""
        return tuple(entry.name for entry in self.entries if entry.action == action)

    def text(self, *, full: bool = False) -> str:
        """A table: one line for each kind of fate, or with `full` one line for each tensor."""
        lines = [f"{self.source}: names of {self.origin}, batch norm: {self.batch_norm}"]
        groups: dict[tuple[str, str], list[str]] = {}
        for entry in self.entries:
            name = f"{entry.name} -> {entry.target}" if full and entry.target else entry.name
            groups.setdefault((entry.action, entry.note), []).append(name)
        for (action, note), names in groups.items():
            shown = [[name] for name in names] if full else [names]
            lines += [f"  {action:<9}{len(part):>4}  {some(part)}{f': {note}' if note else ''}" for part in shown]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def load_pretrained(
    model: nn.Module,
    source: str | Path | Mapping[str, torch.Tensor],
    *,
    batch_norm: Literal["replace", "fold"] = "replace",
    channels: Literal["same", "sum"] = "same",
) -> LoadReport:
    """Fill a ResNet-18, ResNet-50, MobileNetV2, SqueezeNet or MobileFaceNet, in place, with published weights.

    Args:
        model: the backbone; with `normalisation="none"` for "fold", else with group norm; SqueezeNet and
            MobileFaceNet have neither.
        source: a safetensors file, a torch file (read with `weights_only`), or a state dict.
        batch_norm: "replace" or "fold", see above.
        channels: "same" refuses a file whose first convolution reads another number of channels; "sum" adds the
            three colours' weights for a grey model, which then answers as to a grey picture in colour.

    Returns:
        a report; `print(report.text())`.

    Raises:
        InputError: the file is missing or damaged, of another network, incomplete, or not finite; the model is
            then unchanged.
    """
    one_of(("replace", "fold"), batch_norm=batch_norm)
    one_of(("same", "sum"), channels=channels)
    where = "state dict" if isinstance(source, Mapping) else str(source)
    tensors = dict(source) if isinstance(source, Mapping) else read_tensors(source)
    names = naming(model, tensors.keys(), where)
    if names.layers[0].norm:
        _check_norms(model, batch_norm)
    _check_tensors(names.layers, tensors, where)
    own = dict(model.state_dict())
    loaded, entries = {}, []
    for at, layer in enumerate(names.layers):
        weight = tensors[f"{layer.file_conv}.weight"].double()
        wanted = own[f"{layer.conv}.weight"].shape
        file_entries, note = [], ""
        if at == 0 and weight.shape[2:] != wanted[2:]:
            entries += _dropped_stem(layer, tensors, weight.shape[2], wanted[2])
            continue
        if at == 0 and weight.shape[1] != wanted[1]:
            weight, note = _adapt(weight, wanted[1], channels, where)
        if weight.shape != wanted:
            if weight.shape[:2] == wanted[:2] and hasattr(model, "image_size"):  # it spans the whole picture
                raise InputError(_of_other_pictures(layer, weight, model, wanted, where))
            raise InputError(
                f"{where}: {layer.file_conv}.weight is {list(weight.shape)} and this {type(model).__name__} needs "
                f"{list(wanted)}; the file is of another depth or width"
            )
        values, file_entries = _convert(layer, tensors, weight, batch_norm, note)
        loaded |= values
        entries += file_entries
    rest = sorted(tensors.keys() - {entry.name for entry in entries})
    unknown = []
    for name in rest:
        if name.endswith("num_batches_tracked"):
            entries.append(Entry(action="dropped", name=name, note="counts batches of the pretraining"))
        elif name.startswith(f"{names.classifier}."):
            entries.append(Entry(action="dropped", name=name, note=names.why_dropped))
        else:
            unknown.append(name)
    if unknown:
        raise InputError(
            f"{where}: also has {some(unknown)}, which this {type(model).__name__} lacks; "
            "the file is of another network"
        )
    entries += [
        Entry(action="missing", name=name, note="not in the file, keeps its initial value")
        for name in own.keys() - loaded.keys()
    ]
    with torch.no_grad():
        for name, value in loaded.items():
            own[name].copy_(value)
    order = ("mapped", "reshaped", "folded", "dropped", "missing")
    return LoadReport(
        source=where,
        origin=names.origin,
        batch_norm=batch_norm,
        entries=tuple(sorted(entries, key=lambda entry: (order.index(entry.action), entry.note, entry.name))),
        notes=(names.pixels,),
    )


def _convert(
    layer: Layer, tensors: Mapping[str, torch.Tensor], weight: torch.Tensor, batch_norm: str, note: str
) -> tuple[dict[str, torch.Tensor], list[Entry]]:
    """New values of one convolution and its norm, and what became of the file's tensors of it."""
    kernel = Entry(
        action="reshaped" if note else "mapped",
        name=f"{layer.file_conv}.weight",
        target=f"{layer.conv}.weight",
        note=note,
    )
    if not layer.norm:
        bias = Entry(action="mapped", name=f"{layer.file_conv}.bias", target=f"{layer.conv}.bias")
        values, entries = {kernel.target: weight, bias.target: tensors[bias.name]}, [kernel, bias]
        if layer.slopes:
            slopes = Entry(action="mapped", name=layer.file_slopes, target=f"{layer.slopes}.weight")
            values[slopes.target] = tensors[slopes.name]
            entries.append(slopes)
        return values, entries
    scale, offset, mean, variance = (
        tensors[f"{layer.file_norm}.{name}"].double() for name in ("weight", "bias", "running_mean", "running_var")
    )
    deviation = torch.sqrt(variance + _EPS)
    factor = scale / deviation if batch_norm == "fold" else 1 / deviation
    values = {f"{layer.conv}.weight": weight * factor[:, None, None, None]}
    entries = [kernel]

    def add(action: Action, name: str, target: str, note: str = "") -> None:
        entries.append(Entry(action=action, name=f"{layer.file_norm}.{name}", target=target, note=note))

    if batch_norm == "fold":
        values[f"{layer.conv}.bias"] = offset - mean * factor
        for name in ("weight", "running_var"):
            add("folded", name, f"{layer.conv}.weight", "into the convolution's weight")
        for name in ("bias", "running_mean"):
            add("folded", name, f"{layer.conv}.bias", "into the convolution's bias")
    else:
        values |= {f"{layer.norm}.weight": scale, f"{layer.norm}.bias": offset}
        add("mapped", "weight", f"{layer.norm}.weight")
        add("mapped", "bias", f"{layer.norm}.bias")
        add("folded", "running_var", f"{layer.conv}.weight", "the convolution is divided by the deviation")
        add("dropped", "running_mean", "", "group norm subtracts each image's own mean")
    return values, entries


def _of_other_pictures(layer: Layer, weight: torch.Tensor, model: nn.Module, wanted: torch.Size, where: str) -> str:
    height, width = model.image_size  # pyright: ignore[reportGeneralTypeIssues]
    return (
        f"{where}: {layer.file_conv}.weight spans {weight.shape[2]}x{weight.shape[3]} places, and this "
        f"{type(model).__name__} for {height}x{width} pixels needs {wanted[2]}x{wanted[3]}; bring pictures to the "
        "weights' size, 112x112 for published ones (--size 112)"
    )


def _adapt(weight: torch.Tensor, wanted: int, channels: str, where: str) -> tuple[torch.Tensor, str]:
    if wanted == 1 and channels == "sum":
        return weight.sum(1, keepdim=True), f"{weight.shape[1]} input channels summed to 1"
    remedy = 'channels="sum" adds the colours up for grey images' if wanted == 1 else "use images with as many"
    raise InputError(f"{where}: the first convolution reads {weight.shape[1]} channels, the model {wanted}; {remedy}")


def _dropped_stem(
    layer: Layer, tensors: Mapping[str, torch.Tensor], file_kernel: int, small_kernel: int
) -> list[Entry]:
    note = f"first layer: {file_kernel}x{file_kernel} in the file, {small_kernel}x{small_kernel} in a small stem"
    names = _channel_tensors(layer, _STATISTICS)
    return [
        Entry(action="dropped", name=name, note=note)
        for name in (f"{layer.file_conv}.weight", *names)
        if name in tensors
    ]


def _channel_tensors(layer: Layer, statistics: tuple[str, ...] = _STATISTICS[:2]) -> list[str]:
    """Names of the tensors of a layer that have one number a channel: all but its kernel."""
    if not layer.norm:
        return [f"{layer.file_conv}.bias", *([layer.file_slopes] if layer.slopes else [])]
    return [f"{layer.file_norm}.{name}" for name in ("weight", "bias", *statistics)]


def _check_norms(model: nn.Module, batch_norm: str) -> None:
    grouped = any(isinstance(layer, nn.GroupNorm) for layer in model.modules())
    if batch_norm == "fold" and grouped:
        raise InputError(
            'batch_norm="fold" needs a network without norm layers; build the model with normalisation="none", '
            'or use batch_norm="replace"'
        )
    if batch_norm == "replace" and not grouped:
        raise InputError(
            'batch_norm="replace" needs a network with group norm; build the model with normalisation="group", '
            'or use batch_norm="fold"'
        )


def _check_tensors(layers: tuple[Layer, ...], tensors: Mapping[str, torch.Tensor], where: str) -> None:
    needed = [f"{layer.file_conv}.weight" for layer in layers]
    needed += [name for layer in layers for name in _channel_tensors(layer)]
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise InputError(f"{where}: lacks {some(missing)}; the file is incomplete or of another network")
    for layer in layers:
        outputs = tensors[f"{layer.file_conv}.weight"].shape[:1]
        for name in _channel_tensors(layer):
            shape = tensors[name].shape
            if shape != outputs:
                raise InputError(
                    f"{where}: {name} is {list(shape)}, but its convolution has "
                    f"{outputs[0]} channels; the file is damaged"
                )
    broken = [name for name in needed if not torch.isfinite(tensors[name]).all()]
    if broken:
        raise InputError(f"{where}: {some(broken)} holds NaN or infinity; fetch the file again")
