"""Flower's simulation (`flwr[simulation]`, Ray): ClientApp, FedAvg, and its server-side fixed-clipping DP wrapper.

The message API, which Flower's documentation recommends today. Every simulated node takes part in every round; its
data are made once in each Ray actor and stay there; evaluation is off. `actors` says how many Ray actors share the
cores, and each of them computes with `threads` threads. A simulation cannot be stepped from outside, so the gate stands
in the strategy, before a round's messages are made.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable

from workload import SETTINGS, Gate, config, mean_loss, network, tensors

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"

import flower_client
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation


class EndOfInput(Exception):
    """No further round is wanted."""


class Stepped(DifferentialPrivacyServerSideFixedClipping):
    """The DP wrapper, which waits at the gate before each round and after the last one."""

    gate: Gate
    latest: ArrayRecord

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Wait, then make the round's messages."""
        self.latest = arrays
        if not self.gate.wait():
            raise EndOfInput
        return super().configure_train(server_round, arrays, config, grid)


def main() -> None:
    """Run one simulation until the input ends."""
    given = {"actors": 1, **config()}
    os.environ["FL_ROUND_CONFIG"] = json.dumps(given)
    name = given["setting"]
    setting = SETTINGS[name]
    model = network(name)
    inputs, labels = tensors(name)
    strategy = Stepped(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=setting.clients, min_available_nodes=setting.clients),
        noise_multiplier=setting.noise_multiplier,
        clipping_norm=setting.clip_norm,
        num_sampled_clients=setting.clients,
    )
    strategy.latest = initial = ArrayRecord(model.state_dict())

    def loss() -> float:
        model.load_state_dict(strategy.latest.to_torch_state_dict())
        return mean_loss(model, inputs, labels)

    strategy.gate = Gate(loss)
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        with contextlib.suppress(EndOfInput):
            strategy.start(grid=grid, initial_arrays=initial, num_rounds=10**9)

    cores = os.cpu_count() or 1
    run_simulation(
        server_app=server,
        client_app=flower_client.app,
        num_supernodes=setting.clients,
        backend_config={
            "init_args": {"num_cpus": cores, "log_to_driver": False},
            "client_resources": {"num_cpus": cores / given["actors"], "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
