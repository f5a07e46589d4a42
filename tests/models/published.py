"""Batch-norm networks with torchvision's and timm's names, written out again for the tests.

`DIGESTS` come from the libraries themselves (torchvision 0.29.2, timm 1.0.31): SHA-256 of the sorted lines
"name [shape]" of the state dict, so that the networks here cannot drift from the published files.
"""

import hashlib

import torch
from torch import nn
from torch.nn import functional

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
