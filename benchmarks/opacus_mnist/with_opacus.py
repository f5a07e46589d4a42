"""Opacus's MNIST example as it is written, without its options."""

import sys
import time

import torch
from common import BATCH, CLIP, DELTA, NOISE, RATE, mnist, net, report
from opacus import PrivacyEngine
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

seed, epochs = int(sys.argv[1]), int(sys.argv[2])
train_loader = DataLoader(mnist("train"), batch_size=BATCH)
model = net(seed)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
since = time.process_time()
privacy_engine = PrivacyEngine()
model, optimizer, train_loader = privacy_engine.make_private(
    module=model, optimizer=optimizer, data_loader=train_loader, noise_multiplier=NOISE, max_grad_norm=CLIP
)
model.train()
for _ in range(epochs):
    for data, target in train_loader:
        optimizer.zero_grad()
        cross_entropy(model(data), target).backward()
        optimizer.step()
report(model, privacy_engine.get_epsilon(DELTA), since)
