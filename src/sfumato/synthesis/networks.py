"""The networks of EHR-Safe: codecs of categories, the sequential autoencoder, generator and critic.

All networks of a plan, built from its settings and the schema alone.

**Categories.** Categorical columns through one embedding: one-hot, a shared trunk, a head for each column.

Static columns have an autoencoder of their own, and those of visits another. A missing category is a row of zeros and
counts in no loss. Without the encoder (`embedding=None`) one-hot rows are taken as they are, to compare.

**Columns of a row.** Columns of one row, each given those before it: a strictly triangular linear map.

What is measured together is observed together, and a systolic pressure goes with its diastolic one: the columns before
it change a column's number. All columns are learned at once, and drawn one after the other.

**Sequences.** The autoencoder: a patient's whole record becomes one latent vector, and is decoded from it visit by
visit.

The encoder reads embeddings, scores, gaps and masks with a GRU; its last activation is tanh. The decoder generates the
static columns first, the number of visits among them, then each visit given them, the latent vector and the visits
before: the gap, what is observed, categories, numbers. A squared error stands for a normal distribution around what is
decoded, so the spread of each number is learned with it, and generation draws from that distribution: a decoder that
gave its means only would make columns too narrow.

Losses of a patient: squared errors of observed numbers, of embeddings, and of gaps (weighted by `time_weight`), in
units of the learned spread; cross-entropy of masks; cross-entropy of categories, which the heads of `categories` read
off the decoded embeddings.

**Generator.** The generator: from normal numbers to latent vectors, through residual blocks with layer norm.

**Critic.** The critic of latent vectors, and its loss with a penalty on gradients.

It has neither batch norm nor dropout: the penalty is on the gradient of each vector alone.

References:
    Yoon et al. 2023, npj Digital Medicine 6:141. Section "Encoder-decoder".

    Gulrajani et al. 2017, Improved Training of Wasserstein GANs, arXiv 1704.00028. Equation 3.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.data.ehr.schema import Column, Schema
from sfumato.synthesis.records import CLOCK, Batch, Before
from sfumato.synthesis.scales import ADDED
from sfumato.synthesis.settings import EHRSafeSettings
from sfumato.synthesis.summaries import summary_width

_SURE = 1e-4  # the least that a share of a one-hot row counts as, before its logarithm


class CategoryCodec(nn.Module):
    """Encoder and heads.

    Args:
        sizes: categories of each column, >= 1.
        embedding: width of the embedding, >= 1; None takes one-hot rows.
        hidden: width of the trunk.
    """

    def __init__(self, sizes: Sequence[int], embedding: int | None, hidden: int = 64) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.total = sum(self.sizes)
        self.learns = embedding is not None and bool(self.sizes)
        self.width = embedding if embedding is not None and self.sizes else self.total
        if self.learns:
            self.trunk = nn.Sequential(
                nn.Linear(self.total, hidden), nn.ReLU(), nn.Linear(hidden, self.width), nn.Tanh()
            )
            self.heads = nn.ModuleList(nn.Linear(self.width, size) for size in self.sizes)

    def one_hot(self, codes: Tensor) -> Tensor:
        """Codes int64 [..., columns], -1 for missing -> float [..., categories of all columns]."""
        rows = [
            functional.one_hot(codes[..., place] + 1, size + 1)[..., 1:].float()
            for place, size in enumerate(self.sizes)
        ]
        return torch.cat(rows, dim=-1) if rows else torch.zeros(*codes.shape[:-1], 0)

    def encode(self, codes: Tensor) -> Tensor:
        """Codes int64 [..., columns] -> embeddings [..., width]."""
        rows = self.one_hot(codes)
        return self.trunk(rows) if self.learns else rows

    def logits(self, embeddings: Tensor) -> Tensor:
        """Embeddings [..., width] -> logits [..., categories of all columns], the columns side by side."""
        if self.learns:
            return torch.cat([head(embeddings) for head in self.heads], dim=-1)
        return embeddings.clamp_min(_SURE).log()

    def losses(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Cross-entropy of the observed categories of each row [..., columns], summed over columns, [...]."""
        total = logits.new_zeros(codes.shape[:-1])
        for place, part in enumerate(logits.split(self.sizes, dim=-1)):
            flat, wanted = part.flatten(0, -2), codes[..., place].flatten()
            loss = functional.cross_entropy(flat, wanted, ignore_index=-1, reduction="none")
            total = total + loss.reshape(total.shape)
        return total

    def drawn(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """A category of each column, drawn from its probabilities, int64 [n, columns]."""
        noise = torch.rand(logits.shape, generator=generator).clamp_min(1e-12).log().neg().log().neg()
        parts = [part.argmax(1) for part in (logits + noise).split(self.sizes, dim=1)]  # Gumbel's trick
        return torch.stack(parts, dim=1) if parts else torch.zeros(len(logits), 0, dtype=torch.int64)


class Chain(nn.Module):
    """Adds to each column what those before it say.

    Args:
        columns: how many.
        pace: by which weights are multiplied, so that large ones are soon learned.
    """

    def __init__(self, columns: int, *, pace: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(columns, columns))
        self._pace = pace

    def forward(self, base: Tensor, values: Tensor) -> Tensor:
        """Base [..., columns] and the row's own values [..., columns] -> [..., columns]."""
        return base + values @ (self._pace * self.weight).tril(-1).T

    def drawn(self, base: Tensor, draw: Callable[[int, Tensor], Tensor]) -> Tensor:
        """A row, column by column.

        Args:
            base: [n, columns].
            draw: from a column's place and what `forward` gives for it, [n], to its values, [n].
        """
        values = torch.zeros(base.shape[1], base.shape[0])
        weight = self._pace * self.weight.detach()
        for place in range(base.shape[1]):
            conditional = base[:, place] + weight[place, :place] @ values[:place] if place else base[:, 0]
            values[place] = draw(place, conditional)
        return values.T


_CONTEXT = 32  # how many numbers of the latent vector's reading go with every visit
_LEAST_SPREAD = 0.05
_MASK_PACE = 10.0  # what is measured together is measured together nearly always: logits move by five and more
_LAST_WEIGHT = 0.5  # of the last value, before anything is learned


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
        fixed: width of what it also reads, the same for all visits of a patient.
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

    def number_moments(self, x: Tensor, observed: Tensor, embedding: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
        """Means before the chain, and spreads."""
        found = self.numbers(torch.cat([x, observed, embedding], dim=-1), None if fixed is None else fixed[1])
        mean, spread = found.chunk(2, dim=-1)
        return mean, _spread(spread)

    def losses(
        self,
        x: Tensor,
        observed: Tensor,
        scores: Tensor,
        codes: Tensor,
        categories: CategoryCodec,
        fixed: Fixed = None,
    ) -> Tensor:
        """The loss of each row, [...]."""
        columns, front = scores.shape[-1], observed.shape[:-1]
        logits = self.mask_chain(self.mask_base(x, fixed), observed)
        masks = functional.binary_cross_entropy_with_logits(logits, observed, reduction="none").sum(-1)
        embedding = categories.encode(codes).detach()
        found = self.embedding(torch.cat([x, observed], dim=-1))
        there = observed[..., columns:].amax(dim=-1) if codes.shape[-1] else torch.zeros(front)
        mean, spread = self.number_moments(x, observed, embedding, fixed)
        numbers = observed[..., :columns] * _normal_loss(scores, self.number_chain(mean, scores), spread)
        total = masks + there * (found - embedding).square().sum(-1) + numbers.sum(-1)
        if categories.learns:
            total = total + categories.losses(categories.logits(found), codes)
        return total


@dataclass(frozen=True, eq=False)
class DecoderStart:
    """What a decoder starts from, for the visits of B patients.

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
        start_width = 2 * sizes.hidden + sizes.static + self.static_columns + static.width
        self.begin = nn.Linear(start_width, sizes.layers * sizes.hidden)
        self.context = nn.Linear(start_width, _CONTEXT)
        width = sizes.numbers + 3 * columns + temporal.width + 1 + CLOCK + _CONTEXT
        width += sizes.numbers + columns if sizes.summed else 0
        self.teller = nn.GRU(width, sizes.hidden, sizes.layers, batch_first=True)  # old name, in files of models
        self.gap = Head(sizes.hidden + width, 2, sizes.hidden)
        self.visit_rows = Rows(sizes.hidden + width + 1, sizes.numbers, temporal, sizes.hidden, start_width)
        with torch.no_grad():  # a number begins as a part of its last value, which a linear map finds only slowly
            last = slice(sizes.hidden, sizes.hidden + sizes.numbers)
            self.visit_rows.numbers.straight.weight[: sizes.numbers, last] += _LAST_WEIGHT * torch.eye(sizes.numbers)

    def encode(self, batch: Batch) -> Tensor:
        """Latent vectors of patients, [B, latent] in (-1, 1)."""
        static, temporal = self._codecs
        embedding = temporal.encode(batch.codes).detach()
        elapsed = batch.before.clock[..., :1]
        read = torch.cat([batch.scores, batch.observed, embedding, batch.gaps[..., None], elapsed], dim=-1)
        states, _ = self.reader(read)
        lengths = batch.valid.sum(1)
        last = states[torch.arange(len(states)), lengths.long() - 1]
        mean = (states * batch.valid[..., None]).sum(1) / lengths[:, None]
        fixed = static.encode(batch.static_codes).detach()
        return torch.tanh(self.to_latent(torch.cat([last, mean, batch.static, batch.static_observed, fixed], dim=-1)))

    def start(self, latent: Tensor, static: Tensor, observed: Tensor, codes: Tensor) -> "DecoderStart":
        """What a decoder of visits starts from.

        Args:
            latent: [B, latent].
            static: [B, static numbers], scores, 0 where missing.
            observed: [B, static columns].
            codes: int64 [B, static categories], -1 where missing.
        """
        fixed = torch.cat([self.from_latent(latent), static, observed, self._codecs[0].encode(codes).detach()], dim=1)
        state = torch.tanh(self.begin(fixed)).reshape(len(latent), self.sizes.layers, -1).transpose(0, 1).contiguous()
        return DecoderStart(state, self.context(fixed), self.visit_rows.read(fixed))

    def visit_inputs(self, before: Before, context: Tensor) -> Tensor:
        """What the decoder reads before a visit, [..., inputs]."""
        _, temporal = self._codecs
        embedding = temporal.encode(before.codes).detach()
        return torch.cat(
            [
                before.scores,
                before.known,
                before.waited,
                before.observed,
                embedding,
                before.gap[..., None],
                before.clock,
                context,
                before.needed,
            ],
            dim=-1,
        )

    def gap_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
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
            self.from_latent(latent), batch.static_observed, batch.static, batch.static_codes, static
        )
        start = self.start(latent, batch.static, batch.static_observed, batch.static_codes)
        steps = batch.valid.shape[1]
        inputs = self.visit_inputs(batch.before, start.context[:, None].expand(-1, steps, -1))
        states, _ = self.teller(inputs, start.state)  # old name
        x = torch.cat([states, inputs], dim=-1)
        mean, spread = self.gap_moments(x)
        first = batch.before.clock[..., CLOCK - 1]
        later = functional.pad(batch.valid[:, 1:], (0, 1))  # the last visit is when the record ends: no gap is drawn
        gap = later * (1 - first) * _normal_loss(batch.gaps, mean, spread)
        x = torch.cat([x, batch.gaps[..., None]], dim=-1)
        patients = None if start.fixed is None else (start.fixed[0][:, None], start.fixed[1][:, None])
        rows = self.visit_rows.losses(x, batch.observed, batch.scores, batch.codes, temporal, patients)
        return fixed + (batch.valid * (rows + time_weight * gap)).sum(1) / visits


def _spread(raw: Tensor) -> Tensor:
    return _LEAST_SPREAD + functional.softplus(raw)


def _normal_loss(values: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Half the squared error in units of the spread, and the spread's logarithm: a normal density's."""
    return ((values - mean) / spread).square() / 2 + spread.log()


_BLOCKS = 4


class Generator(nn.Module):
    """z [n, width] -> latent vectors [n, latent] in (-1, 1), as the encoder's last activation gives them.

    Args:
        noise: numbers that a vector is made of.
        hidden: width of the blocks.
        latent: of the latent vector.
    """

    def __init__(self, noise: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.noise = noise
        self.begin = nn.Linear(noise, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, hidden)) for _ in range(_BLOCKS)
        )
        self.end = nn.Sequential(nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, latent), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        """Latent vectors."""
        x = self.begin(z)
        for block in self.blocks:
            x = x + block(x)
        return self.end(x)

    def drawn(self, count: int, generator: torch.Generator) -> Tensor:
        """So many latent vectors."""
        return self(torch.randn(count, self.noise, generator=generator))


class Critic(nn.Module):
    """Latent vectors [n, latent] -> scores [n], higher for those of real records.

    Args:
        latent: of the latent vector.
        hidden: width of the two hidden layers.
    """

    def __init__(self, latent: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, latent: Tensor) -> Tensor:
        """Scores."""
        return self.layers(latent).squeeze(1)

    def losses(self, real: Tensor, made: Tensor, share: Tensor, *, penalty: float) -> Tensor:
        """The loss of each pair of a real and a made vector, [n].

        Args:
            real, made: [n, latent].
            share: [n, 1] in [0, 1]: where between the two the gradient is measured.
            penalty: weight of the squared distance of its norm from 1.
        """
        between = (share * real + (1 - share) * made).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self(between).sum(), between, create_graph=True)
        return self(made) - self(real) + penalty * (gradient.norm(dim=1) - 1).square()


class Networks:
    """The networks, with random weights from torch's generator.

    Attributes:
        static, temporal: codecs of categories.
        codec: the sequential autoencoder.
        generator, critic: of the GAN.
        latent_noise: std of what is added to latent vectors before they are decoded.
    """

    def __init__(self, settings: EHRSafeSettings, schema: Schema) -> None:
        with warnings.catch_warnings():
            # where there are no columns of a kind, a layer for them has no weights, which torch warns of
            warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
            self._build(settings, schema)

    def _build(self, settings: EHRSafeSettings, schema: Schema) -> None:
        encodes = settings.category_encoder
        self.static = _codec(schema.static_categorical, settings.static_embedding if encodes else None)
        self.temporal = _codec(schema.temporal_categorical, settings.embedding if encodes else None)
        sizes = Sizes(
            static=len(schema.static_numeric) + (summary_width(schema) if settings.summed else 0) + ADDED,
            numbers=len(schema.temporal_numeric),
            hidden=settings.hidden,
            layers=settings.layers,
            latent=settings.latent,
            summed=settings.summed,
        )
        self.codec = SequenceCodec(sizes, self.static, self.temporal)
        self.generator = Generator(settings.noise, settings.sizes.gan_hidden, settings.latent)
        self.critic = Critic(settings.latent, settings.sizes.gan_hidden)
        self.latent_noise = settings.latent_noise

    def drawn(self, count: int, generator: torch.Generator) -> Tensor:
        """New latent vectors [count, latent], with the noise that the decoder has learned to read them through."""
        latent = self.generator.drawn(count, generator)
        return latent + self.latent_noise * torch.randn(latent.shape, generator=generator)

    def state(self) -> dict[str, Tensor]:
        """The weights of what generates; the critic has served."""
        parts = {"static": self.static, "temporal": self.temporal, "codec": self.codec, "generator": self.generator}
        return {
            f"{name}.{key}": value.detach().clone()
            for name, part in parts.items()
            for key, value in part.state_dict().items()
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Put weights of `state` back."""
        with torch.no_grad():
            for name, value in self.state().items():
                part, _, key = name.partition(".")
                getattr(self, part).get_parameter(key).copy_(tensors[name].reshape(value.shape))


def _codec(columns: tuple[Column, ...], embedding: int | None) -> CategoryCodec:
    return CategoryCodec([len(column.categories) for column in columns], embedding)
