"""LightningModules on made-up records, and Trainers that say little."""

from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader

from central.loops import losses_of, net, records, sgd
from sfumato.integrations import PrivateModule


class Module(PrivateModule):
    """The network of the loops' tests."""

    def __init__(self, network: nn.Module | None = None) -> None:
        super().__init__()
        self.net = net() if network is None else network

    def losses(self, batch, index):
        return losses_of(self.net, batch)

    def validation_step(self, batch, index):
        self.log("loss", losses_of(self.net, batch).mean())

    def configure_optimizers(self):
        return sgd(self.net)


def trainer(**settings) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return Trainer(**{"max_epochs": -1, "logger": False, "accelerator": "cpu", **quiet} | settings)


def held_out() -> DataLoader:
    return DataLoader(records(), batch_size=150)
