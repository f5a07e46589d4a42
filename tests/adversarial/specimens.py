"""Models and losses in which examples are coupled, their sound siblings, and a server that shows its first mean."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sfumato.central import DPSGD
from sfumato.data import ExampleDataset
from sfumato.per_example import Recording, covered

# Models and losses in which examples are coupled, and siblings in which they are not.

Loss = Callable[[Tensor, Tensor], Tensor]
WORDS, CLASSES, LONGEST = 12, 3, 10


def texts(count: int = 48) -> tuple[Tensor, Tensor]:
    """Texts of 1 to 6 words padded with 0, one of 10 words at the end, and classes of which one is rare."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, WORDS, (count, LONGEST), generator=generator)
    lengths = torch.randint(1, 7, (count,), generator=generator)
    lengths[-1] = LONGEST
    ids[torch.arange(LONGEST) >= lengths[:, None]] = 0
    return ids, (torch.arange(count) % 7 == 3).long() + (torch.arange(count) == count - 1).long()


def numbers(count: int = 48) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 6, generator=generator), texts(count)[1]


def each(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores, labels, reduction="none")


class Text(nn.Module):
    """Embedding, something over the words, head."""

    def __init__(self, over: Callable[[Any, Tensor, Tensor], Tensor], *, recurrent: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)
        if recurrent:
            self.gru = nn.GRU(8, 8, batch_first=True)
        self.over = over

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.over(self, ids, (ids != 0).sum(dim=1).clamp(min=1)))


class Dense(nn.Module):
    """Two layers and something between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.between = nn.Linear(6, 8), nn.Linear(8, CLASSES), between

    def forward(self, values: Tensor) -> Tensor:
        return self.two(self.between(self.one(values).tanh()))


def trimmed_mean(model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    return model.table(ids[:, : int(lengths.max())]).mean(dim=1)


def masked_mean(model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    cut = ids[:, : int(lengths.max())]
    return (model.table(cut) * (cut != 0)[:, :, None]).sum(dim=1) / lengths[:, None]


def trimmed_recurrent(model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    return model.gru(model.table(ids[:, : int(lengths.max())]))[1][0]


def packed_recurrent(model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(model.table(ids), lengths, batch_first=True, enforce_sorted=False)
    return model.gru(packed)[1][0]


def sorted_and_back(wrong: bool) -> Callable[[Any, Tensor, Tensor], Tensor]:
    """Put back rightly, too, it is refused: layers meet the examples in an order that is not the batch's."""

    def over(model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
        order = lengths.argsort(descending=True, stable=True)
        packed = pack_padded_sequence(model.table(ids[order]), lengths[order], batch_first=True)
        found, _ = pad_packed_sequence(model.gru(packed)[0], batch_first=True)
        last = found[torch.arange(len(ids)), lengths[order] - 1]
        return last[order if wrong else order.argsort()]

    return over


def balanced(scores: Tensor, labels: Tensor) -> Tensor:
    """Weights in inverse proportion to the classes' sizes, three together."""
    shares = torch.where((counts := torch.bincount(labels, minlength=CLASSES)) > 0, 1 / counts, 0)
    return each(scores, labels) * (CLASSES * shares / shares.sum())[labels]


WEIGHT = torch.tensor([0.05, 1.0, 20.0])


def weighted_mean(scores: Tensor, labels: Tensor) -> Tensor:
    """What a mean over the batch becomes when it is taken apart again."""
    weight = WEIGHT.to(scores.dtype)
    return F.cross_entropy(scores, labels, weight=weight, reduction="none") / weight[labels].mean()


def weighted(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores, labels, weight=WEIGHT.to(scores.dtype), reduction="none")


def hardest(count: int) -> Loss:
    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        found = each(scores, labels)
        least = found.detach().topk(min(count, len(found))).values[-1]
        return found * (found.detach() >= least)

    return loss


class Tokens(nn.Module):
    """A tagger: the loss of a text is the sum over its words."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        scores = self.head(self.table(ids)).transpose(1, 2)
        return F.cross_entropy(scores, ids.roll(1, 1), reduction="none") * (ids != 0)


def by_tokens_of_the_batch(found: Tensor, labels: Tensor) -> Tensor:
    return found.sum(dim=1) * len(found) / (found != 0).sum()


def by_own_tokens(found: Tensor, labels: Tensor) -> Tensor:
    return found.sum(dim=1) / (found != 0).sum(dim=1).clamp(min=1)


class Remembers(Dense):
    """Adds the mean of an earlier batch once there were 30."""

    def __init__(self) -> None:
        super().__init__()
        self.bank: list[Tensor] = []

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.one(values).tanh()
        if len(self.bank) >= 30:
            hidden = hidden + self.bank[-30]
        self.bank.append(self.one(values).tanh().mean(dim=0).detach())
        return self.two(hidden)


class Caches(Dense):
    """Keeps what it saw for somebody to look at."""

    seen: Tensor | None = None

    def forward(self, values: Tensor) -> Tensor:
        self.seen = values.mean(dim=0)
        return super().forward(values)


class Level(Dense):
    """Subtracts a running mean that it keeps in an attribute."""

    level: Tensor | float = 0.0

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.one(values).tanh()
        scores = self.two(hidden - 0.1 * self.level)
        self.level = 0.9 * self.level + 0.1 * hidden.detach().mean(dim=0)
        return scores


class Normalised:
    """A loss divided by its own running mean."""

    def __init__(self) -> None:
        self.level = 1.0

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        found = each(scores, labels)
        losses = found / self.level
        self.level = 0.9 * self.level + 0.1 * float(found.detach().nan_to_num().mean())
        return losses


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # pyright: ignore[reportReturnType]


def room_for(count: int) -> Callable[[Tensor], Tensor]:
    """Two experts with room for so many examples; who comes too late goes without."""

    def between(hidden: Tensor) -> Tensor:
        expert = (hidden[:, 0] > 0).long()
        place = F.one_hot(expert, 2).cumsum(dim=0).gather(1, expert[:, None])
        return hidden * (place <= count)

    return between


def rounded(dim: int | None) -> Callable[[Tensor], Tensor]:
    """Eight bits, with one scale for the whole batch, or one for each example."""

    def between(hidden: Tensor) -> Tensor:
        size = hidden.detach().abs()
        scale = size.max() if dim is None else size.amax(dim=dim, keepdim=True)
        steps = (hidden / scale * 3).detach().round() * scale / 3
        return hidden + (steps - hidden).detach()

    return between


def branch(condition: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    return lambda hidden: 2 * hidden if bool(condition(hidden)) else hidden


def rescaled_by_a_hook(hidden: Tensor) -> Tensor:
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient / (1e-6 + gradient.norm()))
    return hidden


COUPLED: dict[str, tuple[Callable[[], nn.Module], Loss, Callable[..., tuple[Tensor, Tensor]]]] = {
    "trimmed to the longest": (lambda: Text(trimmed_mean), each, texts),
    "trimmed to the longest, recurrent": (lambda: Text(trimmed_recurrent, recurrent=True), each, texts),
    "sorted, packed and put back in the wrong order": (
        lambda: Text(sorted_and_back(True), recurrent=True),
        each,
        texts,
    ),
    "sorted, packed and put back": (lambda: Text(sorted_and_back(False), recurrent=True), each, texts),
    "classes balanced within the batch": (Dense, balanced, numbers),
    "divided by the weights of the batch": (Dense, weighted_mean, numbers),
    "divided by the words of the batch": (Tokens, by_tokens_of_the_batch, texts),
    "the hardest sixteen": (Dense, hardest(16), numbers),
    "room for sixteen": (lambda: Dense(room_for(16)), each, numbers),
    "a scale for the batch": (lambda: Dense(rounded(None)), each, numbers),
    "a guard against NaN": (lambda: Dense(branch(lambda h: h.isnan().any())), each, numbers),
    "a branch on a large batch": (lambda: Dense(branch(lambda h: len(h) > 16)), each, numbers),
    "a branch on an extreme example": (
        lambda: Dense(branch(lambda h: h.abs().amin(dim=1).max() > 0.95)),
        each,
        numbers,
    ),
    "a hook on the gradient of the batch": (lambda: Dense(rescaled_by_a_hook), each, numbers),
    "a part in ten thousand of the mean": (lambda: Dense(lambda h: h - 1e-4 * h.mean(dim=0).detach()), each, numbers),
    "a memory of thirty batches": (Remembers, each, numbers),
    "a median of the batch": (lambda: Dense(lambda h: h - h.median(dim=0).values.detach()), each, numbers),
    "a quantile of the batch": (lambda: Dense(lambda h: h.clamp(max=h.detach().quantile(0.8))), each, numbers),
    "the temperature of the batch": (lambda: Dense(lambda h: h / h.detach().abs().max()), each, numbers),
    "a running sum over the batch": (lambda: Dense(lambda h: h + 0.1 * h.detach().cumsum(dim=0)), each, numbers),
    "attention over the batch": (
        lambda: Dense(lambda h: torch.einsum("bc,ci->bi", (h @ h.T).softmax(1), h)),
        each,
        numbers,
    ),
    "a rank in the batch": (lambda: Dense(lambda h: h * (1 + h[:, :1].argsort(0).argsort(0))), each, numbers),
    "the size of the batch": (lambda: Dense(lambda h: h * len(h)), each, numbers),
    "a running mean of its own": (Level, each, numbers),
    "a loss with a running mean": (Dense, Normalised(), numbers),
    "compiled": (lambda: compiled(Dense(lambda h: h - h.mean(dim=0).detach())), each, numbers),
}

UNCOUPLED: dict[str, tuple[Callable[[], nn.Module], Loss, Callable[..., tuple[Tensor, Tensor]]]] = {
    "masked mean": (lambda: Text(masked_mean), each, texts),
    "packed": (lambda: Text(packed_recurrent, recurrent=True), each, texts),
    "weights of classes": (Dense, weighted, numbers),
    "divided by the text's own words": (Tokens, by_own_tokens, texts),
    "a scale for each example": (lambda: Dense(rounded(1)), each, numbers),
    "room for all": (lambda: Dense(room_for(1 << 20)), each, numbers),
    "something kept to look at": (Caches, each, numbers),
    "a median of each example": (lambda: Dense(lambda h: h - h.median(dim=1, keepdim=True).values), each, numbers),
    "a running sum over each example": (lambda: Dense(lambda h: h.cumsum(dim=1)), each, numbers),
    "compiled": (lambda: compiled(Dense()), each, numbers),
}


PUT_BACK = ("a memory of thirty batches", "a running mean of its own")
"""Kept in attributes, which DP-SGD puts back before every micro-batch: the self-check alone refuses them."""

UNMEASURED = (  # nothing shows in one small batch, or it takes long
    "compiled",
    "a memory of thirty batches",
    "a part in ten thousand of the mean",
    "a running mean of its own",
    "a loss with a running mean",
)


def losses_of(model: nn.Module, loss: Loss) -> Callable[[tuple[Tensor, Tensor]], Tensor]:
    return lambda batch: loss(model(batch[0]), batch[1])


CLIP_NORMS = (1e-3, 0.1, 1.0, 10.0)


def clipped_sums(model: nn.Module, loss: Loss, batch: tuple[Tensor, Tensor], micro_batch: int) -> Tensor:
    """The sums of clipped gradients as the engine has them, in multiples of each clip norm, [clip norms, parameters].

    Draws go on from micro-batch to micro-batch.
    """
    layers, totals = covered(model), torch.zeros(())
    torch.manual_seed(0)
    for start in range(0, len(batch[1]), micro_batch):
        part = batch[0][start : start + micro_batch], batch[1][start : start + micro_batch]
        with Recording(layers, examples=len(part[1])) as recording:
            recording.backward(losses_of(model, loss)(part))
        norms, sums = recording.squared_norms().sqrt(), []
        for clip_norm in CLIP_NORMS:
            weights = torch.where(norms.isfinite(), (clip_norm / norms).clamp(max=1.0), 0.0)
            sums.append(torch.cat([total.flatten() for total in recording.weighted_sum(weights)]) / clip_norm)
        totals = totals + torch.stack(sums)
    return totals


def largest_move(
    build: Callable[[], nn.Module], loss: Loss, batch: tuple[Tensor, Tensor], micro_batch: int = 1 << 20
) -> float:
    """How far the sum moves when one example goes, in multiples of the clip norm: the largest over the examples."""
    inputs, labels = batch
    whole = clipped_sums(build(), loss, batch, micro_batch)
    moves = []
    for absent in range(len(labels)):
        rest = [place for place in range(len(labels)) if place != absent]
        without = clipped_sums(build(), loss, (inputs[rest], labels[rest]), micro_batch)
        moves.append(float((whole - without).norm(dim=1).max()))
    return max(moves)


def extreme(batch: tuple[Tensor, Tensor], kind: str) -> tuple[Tensor, Tensor]:
    """The batch in which the coupling shows."""
    inputs, labels = batch
    if kind == "a guard against NaN":
        inputs[-1] = torch.nan
    if kind in ("a branch on an extreme example", "a scale for the batch"):
        inputs[-1] *= 100
    if kind == "a branch on a large batch":
        inputs, labels = inputs[:17], labels[:17]
    return inputs, labels


PLAN = DPSGD(steps=2, cohort=8, clipping=1.0, noise=1.0, seed=0)


def as_data(batch: tuple[Tensor, Tensor]) -> ExampleDataset:
    return ExampleDataset(inputs=(batch[0].numpy(),), targets=batch[1].numpy(), num_classes=CLASSES)


# Models that draw random numbers: those that examples share, and those of each example's own.


def depth(shape: Callable[[Tensor], tuple[int, ...]]) -> Callable[[Tensor], Tensor]:
    return lambda hidden: hidden * (torch.rand(shape(hidden)) < 0.5)


def seeded(hidden: Tensor) -> Tensor:
    torch.manual_seed(0)
    return hidden * (torch.rand(len(hidden), 1) < 0.5)


def from_its_own(hidden: Tensor) -> Tensor:
    return hidden * (torch.rand(len(hidden), 1, generator=torch.Generator().manual_seed(0)) < 0.5)


SHARED: dict[str, Callable[[], nn.Module]] = {
    "a gate": lambda: Dense(depth(lambda h: (1,))),
    "a number": lambda: Dense(depth(lambda h: ())),
    "a mask of the units": lambda: Dense(depth(lambda h: h.shape[1:])),
    "dropout on what is broadcast": lambda: Dense(lambda h: h * F.dropout(torch.ones(1, 8), 0.5)),
    "a layer's dropout on what is broadcast": lambda: Dense(lambda h: h * nn.Dropout(0.5)(torch.ones(1, 8))),
    "a block that the batch skips": lambda: Dense(lambda h: -h if torch.rand(()) < 0.5 else h),
    "Python's random": lambda: Dense(lambda h: h.tanh() if random.random() < 0.01 else h),
    "numpy.random": lambda: Dense(lambda h: h.tanh() if np.random.rand() < 0.01 else h),  # noqa: NPY002
    "an order": lambda: Dense(lambda h: h * (torch.randperm(len(h)) < len(h) / 2)[:, None]),
    "a choice": lambda: Dense(lambda h: h * torch.ones(len(h)).multinomial(len(h), replacement=True)[:, None]),
    "a direction": lambda: Dense(lambda h: h + torch.randn_like(h[0])),
    "numbers for the places of a batch": lambda: Dense(seeded),
    "a generator of its own": lambda: Dense(from_its_own),
    "compiled": lambda: compiled(Dense(depth(lambda h: (1,)))),
}

MIXED: dict[str, Callable[[], nn.Module]] = {
    "exactly half of the batch": lambda: Dense(
        lambda h: h * ((drawn := torch.rand(len(h))) <= drawn.median())[:, None]
    ),
    "in order": lambda: Dense(lambda h: h * (torch.rand(len(h)).sort().values < 0.5)[:, None]),
    "as shares of the batch": lambda: Dense(lambda h: h * torch.rand(len(h)).softmax(dim=0)[:, None] * len(h)),
    "dropout without its mean": lambda: Dense(
        lambda h: h * (kept := F.dropout(torch.ones_like(h))) / (kept.mean() + 1)
    ),
}

OWN: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: Dense(lambda h: F.dropout(h, 0.5)),
    "alpha dropout": lambda: Dense(lambda h: F.alpha_dropout(h, 0.5, True)),
    "depth": lambda: Dense(depth(lambda h: (len(h), 1))),
    "noise": lambda: Dense(lambda h: h + torch.randn_like(h)),
    "noise with a size of its own": lambda: Dense(lambda h: torch.normal(h, 0.1 + h.detach().abs())),
    "bits of their own chance": lambda: Dense(lambda h: h * torch.bernoulli(h.detach().sigmoid())),
    "a class drawn from the scores": lambda: Dense(
        lambda h: h * h.detach().softmax(dim=1).multinomial(2).sum(1)[:, None]
    ),
    "channels": lambda: Dense(lambda h: F.dropout1d(h.view(-1, 4, 2), 0.5).flatten(1)),
    "time first": lambda: Dense(
        lambda h: F.dropout(h.view(len(h), 4, 2).transpose(0, 1), 0.5).transpose(0, 1).flatten(1)
    ),
    "several rows an example": lambda: Dense(lambda h: F.dropout(h.reshape(-1, 2), 0.5).reshape(h.shape)),
    "several rows an example, time first": lambda: Dense(
        lambda h: (
            F.dropout(h.view(len(h), 4, 2).transpose(0, 1).reshape(-1, 2), 0.5)
            .view(4, len(h), 2)
            .transpose(0, 1)
            .flatten(1)
        )
    ),
    "only for some examples": lambda: Dense(
        lambda h: h.index_put(((h[:, 0] > 0).nonzero()[:, 0],), F.dropout(h[h[:, 0] > 0], 0.5))
    ),
    "slopes": lambda: Dense(lambda h: F.rrelu(h, training=True)),
    "a soft class drawn from the scores": lambda: Dense(F.gumbel_softmax),
    "several layers": lambda: Dense(nn.Sequential(nn.Dropout(0.3), nn.AlphaDropout(0.2))),
    "compiled": lambda: compiled(Dense(lambda h: F.dropout(h, 0.5))),
    "nothing": Dense,
}


# A server that shows the first noisy mean, and goes no further.


class Seen(BaseException):
    """The process ends when its first noisy mean was seen."""

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.mean = mean


class Watched(torch.optim.SGD):
    """Shows the noisy mean and goes no further."""

    def step(self, closure: Any = None) -> None:
        gradients = [p.grad.flatten() for group in self.param_groups for p in group["params"]]
        raise Seen(torch.cat(gradients).clone())
