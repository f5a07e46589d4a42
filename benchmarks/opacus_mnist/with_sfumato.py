"""Opacus's MNIST example with the loop of sfumato."""

import sys
import time

import torch
from common import BATCH, CLIP, DELTA, NOISE, RATE, mnist, net, report
from torch.nn.functional import cross_entropy

from sfumato import DPSGD

seed, epochs = int(sys.argv[1]), int(sys.argv[2])
dataset = mnist("train")
model = net(seed)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
since = time.process_time()
plan = DPSGD(epochs=epochs, cohort=BATCH, noise=NOISE, clipping=CLIP, delta=DELTA)
with plan.open(model, optimizer, dataset) as private:
    for data, target in private:
        private.backward(cross_entropy(model(data), target, reduction="none"))
report(model, private.statement.epsilon, since)
