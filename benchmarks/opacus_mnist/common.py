"""What both programs share: the network and the pictures of Opacus's MNIST example, the settings, the measuring."""

import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist.npz"
MEAN, STD = 0.1307, 0.3081
BATCH, RATE, NOISE, CLIP, DELTA = 240, 0.1, 1.0, 1.0, 1e-5


class Net(nn.Module):
    """The example's network: two convolutions, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 8, 2, padding=3)
        self.conv2 = nn.Conv2d(16, 32, 4, 2)
        self.fc1 = nn.Linear(32 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [n, 10] of pictures [n, 1, 28, 28]."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2, 1)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2, 1)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def net(seed: int) -> Net:
    """Weights that a seed decides: the same for both programs."""
    torch.manual_seed(seed)
    return Net()


def mnist(part: str) -> TensorDataset:
    """Pictures and classes of "train" or "test"."""
    arrays = np.load(DATA)
    pictures = torch.from_numpy(arrays[f"x_{part}"])[:, None].float() / 255
    return TensorDataset((pictures - MEAN) / STD, torch.from_numpy(arrays[f"y_{part}"]).long())


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Share of the test pictures that are classified correctly."""
    pictures, classes = mnist("test").tensors
    model.eval()
    return float((model(pictures).argmax(dim=1) == classes).double().mean())


def report(model: nn.Module, epsilon: float, since: float) -> None:
    """Print a line for run.py; `since` is the process's CPU time before training."""
    seconds = time.process_time() - since
    print(json.dumps({"accuracy": accuracy(model), "epsilon": epsilon, "seconds": seconds}))
