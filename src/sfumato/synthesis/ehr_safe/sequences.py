"""The sequential autoencoder: a patient's whole record becomes one latent vector, and is told from it visit by visit.

The encoder reads embeddings, scores, gaps and masks with a GRU; its last activation is tanh. The decoder tells the
static columns first, the number of visits among them, then each visit given them, the latent vector and the visits
before: the gap, what is observed, categories, numbers. A squared error stands for a normal distribution around what is
decoded, so the spread of each number is learned with it, and generation draws from that distribution: a decoder that
gave its means only would make columns too narrow.

Losses of a patient: squared errors of observed numbers, of embeddings, and of gaps (weighted by `time_weight`), in
units of the learned spread; cross-entropy of masks; cross-entropy of categories, which the heads of `categories` read
off the decoded embeddings.

References:
    Yoon et al. 2023, npj Digital Medicine 6:141. Section "Encoder-decoder".
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.synthesis.ehr_safe.categories import CategoryCodec
from sfumato.synthesis.ehr_safe.chain import Chain
from sfumato.synthesis.ehr_safe.records import CLOCK, Batch, Before

_CONTEXT = 32  # how many numbers of the latent vector's reading go with every visit
_LEAST_SPREAD = 0.05
_MASK_PACE = 10.0  # what is measured together is measured together nearly always: logits move by five and more
_KEPT = 0.5  # of the last value, before anything is learned


@dataclass(frozen=True)
class Sizes:
    """How wide the parts are.

    Attributes:
        static: numeric static columns, with the added ones.
        numbers: numeric temporal columns.
        hidden: of GRUs and heads.
        layers: of GRUs.
        latent: of the latent vector.
        summed: whether records are summed up.
    """

    static: int
    numbers: int
    hidden: int
    layers: int
    latent: int
    summed: bool


class Head(nn.Module):
    """A linear map and one through a hidden layer, added up.

    Args:
        inputs: width of what it reads.
        outputs: width of what it gives.
        hidden: width of the hidden layer.
        fixed: width of what it reads beside that, which stays the same for all visits of a patient.
    """

    def __init__(self, inputs: int, outputs: int, hidden: int, fixed: int = 0) -> None:
        super().__init__()
        self.straight = nn.Linear(inputs, outputs)
        self.hidden = nn.Linear(inputs, hidden)
        self.out = nn.Linear(hidden, outputs)
        self.fixed = nn.Linear(fixed, outputs + hidden, bias=False)

    def forward(self, x: Tensor, fixed: Tensor | None = None) -> Tensor:
        """[..., inputs], and what `self.fixed` gives of the rest, [..., outputs + hidden] -> [..., outputs]."""
        if fixed is None:
            return self.straight(x) + self.out(functional.relu(self.hidden(x)))
        straight, hidden = fixed.split([self.out.out_features, self.out.in_features], dim=-1)
        return self.straight(x) + straight + self.out(functional.relu(self.hidden(x) + hidden))


Fixed = tuple[Tensor, Tensor] | None
"""What `Rows.read` gives."""


class Rows(nn.Module):
    """Heads for a row of columns: which are observed, embeddings of its categories, its numbers.

    Args:
        inputs: width of what they read.
        numbers: numeric columns.
        categories: the codec of the categorical ones; it is not trained here.
        hidden: width of the hidden layers.
        fixed: width of what stays the same for all rows of a patient; what `read` gives of it goes with each row.
    """

    def __init__(self, inputs: int, numbers: int, categories: CategoryCodec, hidden: int, fixed: int = 0) -> None:
        super().__init__()
        columns = numbers + len(categories.sizes)
        self.masks = Head(inputs, columns, hidden, fixed)
        self.mask_chain = Chain(columns, pace=_MASK_PACE)
        self.embedding = nn.Linear(inputs + columns, categories.width)
        self.numbers = Head(inputs + columns + categories.width, 2 * numbers, hidden, fixed)
        self.number_chain = Chain(numbers)
        self.fixed = fixed

    def read(self, fixed: Tensor) -> Fixed:
        """What stays the same, [..., fixed], as the heads take it: once for all rows of a patient."""
        return (self.masks.fixed(fixed), self.numbers.fixed(fixed)) if self.fixed else None

    def mask_base(self, x: Tensor, fixed: Fixed) -> Tensor:
        """Logits of what is observed, before the chain."""
        return self.masks(x, None if fixed is None else fixed[0])

    def number_parts(self, x: Tensor, seen: Tensor, embedding: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        """Means before the chain, and spreads."""
        found = self.numbers(torch.cat([x, seen, embedding], dim=-1), None if fixed is None else fixed[1])
        mean, spread = found.chunk(2, dim=-1)
        return mean, _spread(spread)

    def losses(
        self,
        x: Tensor,
        seen: Tensor,
        scores: Tensor,
        codes: Tensor,
        categories: CategoryCodec,
        fixed: Fixed = None,
    ) -> Tensor:
        """The loss of each row, [...]."""
        columns, front = scores.shape[-1], seen.shape[:-1]
        logits = self.mask_chain(self.mask_base(x, fixed), seen)
        masks = functional.binary_cross_entropy_with_logits(logits, seen, reduction="none").sum(-1)
        embedding = categories.encode(codes).detach()
        found = self.embedding(torch.cat([x, seen], dim=-1))
        there = seen[..., columns:].amax(dim=-1) if codes.shape[-1] else torch.zeros(front)
        mean, spread = self.number_parts(x, seen, embedding, fixed)
        numbers = seen[..., :columns] * _normal_loss(scores, self.number_chain(mean, scores), spread)
        total = masks + there * (found - embedding).square().sum(-1) + numbers.sum(-1)
        if categories.learns:
            total = total + categories.losses(categories.logits(found), codes)
        return total


@dataclass(frozen=True, eq=False)
class Opened:
    """What a decoder tells the visits of B patients from.

    Attributes:
        state: float [layers, B, hidden], the first one of its GRU.
        context: float [B, 32], goes with every visit.
        fixed: what heads of visits read of the patient.
    """

    state: Tensor
    context: Tensor
    fixed: Fixed


class SequenceCodec(nn.Module):
    """Encoder and decoder.

    Args:
        sizes: how wide.
        static: the codec of static categories.
        temporal: the codec of visits' categories. Neither is trained here, nor is a part of this module.
    """

    def __init__(self, sizes: Sizes, static: CategoryCodec, temporal: CategoryCodec) -> None:
        super().__init__()
        self.sizes = sizes
        self._codecs = (static, temporal)  # in a tuple, so that torch does not count them as parts
        columns = sizes.numbers + len(temporal.sizes)
        self.static_columns = sizes.static + len(static.sizes)
        read = sizes.numbers + columns + temporal.width + 2
        self.reader = nn.GRU(read, sizes.hidden, sizes.layers, batch_first=True)
        self.to_latent = Head(
            2 * sizes.hidden + sizes.static + self.static_columns + static.width, sizes.latent, 2 * sizes.hidden
        )
        self.from_latent = nn.Sequential(nn.Linear(sizes.latent, 2 * sizes.hidden), nn.ReLU())
        self.static_rows = Rows(2 * sizes.hidden, sizes.static, static, sizes.hidden)
        opened = 2 * sizes.hidden + sizes.static + self.static_columns + static.width
        self.begin = nn.Linear(opened, sizes.layers * sizes.hidden)
        self.context = nn.Linear(opened, _CONTEXT)
        told = sizes.numbers + 3 * columns + temporal.width + 1 + CLOCK + _CONTEXT
        told += sizes.numbers + columns if sizes.summed else 0
        self.teller = nn.GRU(told, sizes.hidden, sizes.layers, batch_first=True)
        self.gap = Head(sizes.hidden + told, 2, sizes.hidden)
        self.visit_rows = Rows(sizes.hidden + told + 1, sizes.numbers, temporal, sizes.hidden, opened)
        with torch.no_grad():  # a number begins as a part of its last value, which a linear map finds only slowly
            last = slice(sizes.hidden, sizes.hidden + sizes.numbers)
            self.visit_rows.numbers.straight.weight[: sizes.numbers, last] += _KEPT * torch.eye(sizes.numbers)

    def encode(self, batch: Batch) -> Tensor:
        """Latent vectors of patients, [B, latent] in (-1, 1)."""
        static, temporal = self._codecs
        embedding = temporal.encode(batch.codes).detach()
        elapsed = batch.before.clock[..., :1]
        read = torch.cat([batch.scores, batch.seen, embedding, batch.gaps[..., None], elapsed], dim=-1)
        states, _ = self.reader(read)
        lengths = batch.valid.sum(1)
        last = states[torch.arange(len(states)), lengths.long() - 1]
        mean = (states * batch.valid[..., None]).sum(1) / lengths[:, None]
        fixed = static.encode(batch.static_codes).detach()
        return torch.tanh(self.to_latent(torch.cat([last, mean, batch.static, batch.static_seen, fixed], dim=-1)))

    def opened(self, latent: Tensor, static: Tensor, seen: Tensor, codes: Tensor) -> "Opened":
        """What a decoder tells visits from.

        Args:
            latent: [B, latent].
            static: [B, static numbers], scores, 0 where missing.
            seen: [B, static columns].
            codes: int64 [B, static categories], -1 where missing.
        """
        fixed = torch.cat([self.from_latent(latent), static, seen, self._codecs[0].encode(codes).detach()], dim=1)
        state = torch.tanh(self.begin(fixed)).reshape(len(latent), self.sizes.layers, -1).transpose(0, 1).contiguous()
        return Opened(state, self.context(fixed), self.visit_rows.read(fixed))

    def told(self, before: Before, context: Tensor) -> Tensor:
        """What the decoder reads before a visit, [..., told]."""
        _, temporal = self._codecs
        embedding = temporal.encode(before.codes).detach()
        return torch.cat(
            [
                before.scores,
                before.known,
                before.waited,
                before.seen,
                embedding,
                before.gap[..., None],
                before.clock,
                context,
                before.needed,
            ],
            dim=-1,
        )

    def gap_parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and spread of the gap's score."""
        mean, spread = self.gap(x).unbind(-1)
        return mean, _spread(spread)

    def losses(self, batch: Batch, noise: Tensor, *, time_weight: float, visits: float) -> Tensor:
        """The loss of each patient, [B].

        Args:
            batch: the patients.
            noise: [B, latent], added to the latent vectors, so that near ones mean nearly the same.
            time_weight: of the gaps.
            visits: by which the sum over visits is divided; the mean number of them.
        """
        static, temporal = self._codecs
        latent = self.encode(batch) + noise
        fixed = self.static_rows.losses(
            self.from_latent(latent), batch.static_seen, batch.static, batch.static_codes, static
        )
        opened = self.opened(latent, batch.static, batch.static_seen, batch.static_codes)
        steps = batch.valid.shape[1]
        told = self.told(batch.before, opened.context[:, None].expand(-1, steps, -1))
        states, _ = self.teller(told, opened.state)
        x = torch.cat([states, told], dim=-1)
        mean, spread = self.gap_parts(x)
        first = batch.before.clock[..., CLOCK - 1]
        later = functional.pad(batch.valid[:, 1:], (0, 1))  # the last visit is when the record ends: no gap is told
        gap = later * (1 - first) * _normal_loss(batch.gaps, mean, spread)
        x = torch.cat([x, batch.gaps[..., None]], dim=-1)
        beside = None if opened.fixed is None else (opened.fixed[0][:, None], opened.fixed[1][:, None])
        rows = self.visit_rows.losses(x, batch.seen, batch.scores, batch.codes, temporal, beside)
        return fixed + (batch.valid * (rows + time_weight * gap)).sum(1) / visits


def _spread(raw: Tensor) -> Tensor:
    return _LEAST_SPREAD + functional.softplus(raw)


def _normal_loss(values: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Half the squared error in units of the spread, and the spread's logarithm: a normal density's."""
    return ((values - mean) / spread).square() / 2 + spread.log()
