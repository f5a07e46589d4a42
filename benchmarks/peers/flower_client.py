"""The ClientApp of `peer_flower.py`; a module of its own, as in any Flower app: Ray actors import it by name."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy
from workload import SETTINGS, network, tensors

app = ClientApp()


@lru_cache(maxsize=1)
def resident() -> tuple[dict[str, Any], torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The configuration, the model and all clients' records, made once in each actor."""
    given = json.loads(os.environ["FL_ROUND_CONFIG"])
    torch.set_num_threads(given["threads"])
    return (given, network(given["setting"]), *tensors(given["setting"]))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local SGD of one node, from the parameters in the message to those in the reply."""
    given, model, inputs, labels = resident()
    setting = SETTINGS[given["setting"]]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=setting.learning_rate, foreach=True)
    client = int(context.node_config["partition-id"])
    for _ in range(setting.epochs):
        for x, y in zip(inputs[client].split(setting.batch), labels[client].split(setting.batch)):
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(model(x), y).backward()
            optimizer.step()
    reply = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": setting.records}),
        }
    )
    return Message(content=reply, reply_to=message)
