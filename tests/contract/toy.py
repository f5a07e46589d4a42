"""A system of its own, written against the contracts alone: a noisy mean in two phases.

Phase "histogram" counts the signs of the first feature with Gaussian noise. Phase "mean" takes rounds towards the mean
of the records, with noise that is correlated over time. Unit: one record, zeroed out; everybody takes part in every
other round. If this file grows, the contracts have become worse.
"""

import hashlib

import numpy as np
import torch
from torch import nn

from sfumato import accounting as acc
from sfumato.clipping import Flat
from sfumato.runs import Run
from sfumato.sampling import Sampler
from sfumato.statement import Facts
from sfumato.training import Cadence, Contribution, Loop, Optimizer, PrivateSum, Server, Trainable


class EveryOther(Sampler):
    """Records of even places in even rounds, of odd ones in odd rounds, whoever else is there."""

    adjacency = "zero_out"

    def draw(self, present, round, source):
        return np.arange(round % 2, present, 2)

    def account(self, event):
        return event

    def participation(self, rounds):
        return acc.Participation(rounds=rounds, max_participations=None, min_separation=1)

    def describe(self):
        return "everyone in every other round"


class EchoingNoise:
    """w_t = z_t − w_{t−1}/2: the noise C⁻¹z of the strategy C that has 1 on its diagonal and 1/2 below it."""

    stream, last = True, 0.0

    def __init__(self, noise_multiplier):
        self.multiplier = noise_multiplier

    def noise_std(self, scale):
        return self.multiplier * scale

    def release(self, total, *, scale, round, source):
        fresh = torch.from_numpy(source.stream("noise", round).normal(len(total))) * self.noise_std(scale)
        self.last = fresh - 0.5 * self.last
        return total.add_(self.last)

    def event(self, moved, sampler, rounds):
        return acc.MatrixMechanism.toeplitz(self.multiplier / moved, sampler.participation(rounds), [1.0, 0.5])

    def restarts(self, round):
        return False

    def describe(self):
        return "sums with echoing noise"

    def state(self):
        return {"last": torch.as_tensor(self.last)}

    def load(self, state):
        self.last = state["last"]


class Mean(Contribution):
    """A record's contribution is the present mean's way from it."""

    def __init__(self, records):
        self.records, self.population = torch.from_numpy(records), len(records)
        self.trained = Trainable(nn.ParameterDict({"mean": torch.zeros(records.shape[1])}))

    def clipped_sum(self, context):
        share = context.new_sum(self.trained.layout)
        share.add_rows(context.theta - self.records[context.cohort.units])
        return share

    def fingerprint(self):
        return hashlib.sha256(self.records.numpy().tobytes()).hexdigest()


def private_sum(population, rounds=5, z=4.0):
    """The rounds of phase "mean"."""
    sampler, bound = EveryOther(size=population // 2), Flat(norm=0.5)
    return PrivateSum(sampler=sampler, bound=bound, mechanism=EchoingNoise(z), rounds=rounds)


def noisy_mean(records, out=None, *, rounds=5, z=4.0, **options):
    """Both phases, from float32 [n, d], with options of `Run.open`; the statement."""
    parts, mean, plan = private_sum(len(records), rounds, z), Mean(records), {"rounds": rounds, "z": z}
    theta = mean.trained.initial.clone()
    server = Server(Optimizer(learning_rate=0.5), mean.trained.views(theta))

    def signs(source):
        counts = np.bincount(records[:, 0] > 0, minlength=2) + z * source.stream("histogram").normal(2)
        return {"histogram": torch.from_numpy(counts)}

    with Run.open(out, plan=plan, **options) as run:
        loop = Loop(private_sum=parts, contribution=mean, server=server, theta=theta, run=run, phase="mean")
        if options.get("resume"):
            loop.resume(run.saved(f"{plan} {mean.fingerprint()}"))
        run.start(f"{plan} {mean.fingerprint()}")
        histogram = run.release("histogram", acc.Gaussian(z), signs)
        loop.rounds(Cadence(checkpoint_every=2))
        words = {"sampling": parts.sampler.describe(), "mechanism": f"a histogram, {parts.mechanism.describe()}"}
        facts = Facts(unit="example", adjacency=parts.sampler.adjacency, population=len(records), delta=1e-3, **words)
        return run.finish({"mean": theta, **histogram}, facts, complete=loop.finished)
