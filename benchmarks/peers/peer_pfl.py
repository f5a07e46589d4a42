"""pfl-research (PyPI `pfl`) as its documentation has it: SimulatedBackend, FederatedAveraging, GaussianMechanism.

Datasets are built once and hold torch tensors (pfl caches their batches); evaluation is off but in the first round,
which is for warming up. pfl drives its own loop, so the gate stands in its callback after each central iteration.
"""

from __future__ import annotations

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism
from torch.nn.functional import cross_entropy
from workload import SETTINGS, Gate, config, mean_loss, network, tensors


class Trained(torch.nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [n, classes]."""
        return self.inner(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of a batch."""
        return cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        """Sum of the cross-entropy over a batch."""
        return {"loss": Weighted(float(cross_entropy(self(x), y, reduction="sum")), len(x))}


class BetweenRounds(TrainingProcessCallback):
    """Waits at the gate before the first round and after each one; stops the run at the end of the input."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Report ready."""
        self.gate.wait()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Report the round, wait for the next."""
        return not self.gate.wait(), Metrics()


def main() -> None:
    """Run pfl's loop until the input ends."""
    given = config()
    name = given["setting"]
    setting = SETTINGS[name]
    inputs, labels = tensors(name)
    users = {user: Dataset(raw_data=[inputs[user], labels[user]], user_id=str(user)) for user in range(setting.clients)}
    federated = FederatedDataset(
        make_dataset_fn=users.__getitem__,
        user_sampler=get_user_sampler("minimize_reuse", list(users)),
    )
    net = Trained(network(name))
    model = PyTorchModel(
        model=net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    mechanism = GaussianMechanism(clipping_bound=setting.clip_norm, relative_noise_stddev=setting.noise_multiplier)
    backend = SimulatedBackend(
        training_data=federated,
        val_data=federated,
        postprocessors=[CentrallyAppliedPrivacyMechanism(mechanism)],
    )
    gate = Gate(lambda: mean_loss(net, inputs, labels))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=setting.clients,
            val_cohort_size=None,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=setting.epochs,
            local_learning_rate=setting.learning_rate,
            local_batch_size=setting.batch,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=setting.records),
        callbacks=[BetweenRounds(gate)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
