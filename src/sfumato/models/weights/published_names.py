"""Which layer of a backbone is which layer in torchvision's and timm's state dicts, and in MobileFaceNet's.

Both libraries name the layers of their ResNets alike. Their MobileNetV2 files differ. Every convolution comes
with its norm, in SqueezeNet and MobileFaceNet with a bias and no norm, in the latter mostly with slopes of a PReLU.
The last dense layer (the classifier of the file's own labels) has no counterpart here; MobileFaceNet's is the
embedding, and is taken where it has the model's dimensions.
"""

from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from sfumato._check import InputError
from sfumato.models.backbones.mobilefacenet import MobileFaceNet
from sfumato.models.backbones.mobilenet import STAGES, MobileNetV2
from sfumato.models.backbones.resnet import ResNet
from sfumato.models.backbones.squeezenet import SqueezeNet
from sfumato.models.weights.files import some

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
            "published weights can be mapped to a ResNet, a MobileNetV2, a SqueezeNet or a MobileFaceNet, not to "
            f"{type(model).__name__}; leave the weights out, or give the model.safetensors of a run of sfumato"
        )
    raise InputError(
        f"{where}: not the names of published weights of a {type(model).__name__}, "
        f"found {some(sorted(names))}; give published weights of it, or the model.safetensors of a run of sfumato as "
        "it was written (load_weights in Python)"
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
