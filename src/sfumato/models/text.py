"""Networks of tokens: classifiers of texts, models of the next token, and what they share.

Id 0 is padding, after the end of a sequence.

**Classifier by LSTM:** embedding, bidirectional LSTM, mean over the tokens, linear layer. Id 0 is padding after the end
of a text. Sequences are packed, so that the backward direction starts at a text's own last token and an example's
output does not depend on how far its batch is padded. With `normalisation="layer"`, layer norm follows the embedding
and the LSTM (Davody et al.: after every trained layer but the last). 1,236,548 parameters for a vocabulary of 10,000
and four classes. No layer couples examples.

>>> model = bilstm_classifier(4, vocabulary_size=10_000)
>>> sum(parameter.numel() for parameter in model.parameters())
1236548
>>> model(torch.tensor([[5, 7, 2, 0, 0], [1, 2, 3, 4, 5]])).shape
torch.Size([2, 4])

**Classifier by Transformer:** a small encoder, attention built from linear layers, mean over the tokens, linear layer.
Blocks normalise first (Xiong et al. 2020); positions are sinusoids, which have nothing to train. Queries, keys, values
and outputs are `nn.Linear`, so each trained layer has its own rule for per-example gradients. Id 0 is padding after the
end of a text: it is neither attended to nor averaged, so an example's output does not depend on how far its batch is
padded. Attention is within one example. Without dropout: the noise of private training regularises enough.

>>> model = transformer_classifier(4, vocabulary_size=10_000)
>>> sum(parameter.numel() for parameter in model.parameters())
4141060
>>> model(torch.tensor([[5, 7, 2, 0, 0], [1, 2, 3, 4, 5]])).shape
torch.Size([2, 4])

**Language model by LSTM:** embedding, LSTMs, a narrow layer if there is one, and logits of the next token at every
place. What it is by default are the networks of the federated text tasks: for words, embedding 96, one LSTM of 670, a
layer of 96 (4,050,748 parameters at 10,004 ids, and 2,680 of torch's second bias); for characters, embedding 8 and two
LSTMs of 256. An alphabet is what has at most 256 ids. Padding comes after the end, so it reaches no logit of a token
before it. No layer couples examples.

Two parts can be a user's own, for training that leaves them with the user (`local_parameters`): vectors of words
outside of the vocabulary, whose ids come after all others (`sfumato.data.open_users`), and a vector of the user that
every step reads with its token.

While several clients are mapped over (`torch.func.vmap`), the recurrence is computed here, step by step: torch's own
cannot be mapped on a GPU.

>>> model = lstm(vocabulary_size=10_004)
>>> sum(parameter.numel() for parameter in model.parameters()) - 4 * 670
4050748
>>> lstm(vocabulary_size=100)(torch.tensor([[98, 5, 7], [98, 2, 0]])).shape
torch.Size([2, 3, 100])
>>> own = lstm(vocabulary_size=100, oov_buckets=50, user_features=4)
>>> own(torch.tensor([[98, 5, 149]])).shape, own.local_parameters
(torch.Size([1, 3, 100]), 'oov_embedding.weight|user_vector')

**Language model by Transformer:** a small decoder, in which each place attends to itself and those before it, and
predicts the next token. Blocks normalise first (Xiong et al. 2020), positions are learned, the output layer is its own.
Padding comes after the end, so nothing of it reaches a token before it. Without dropout: the noise of private training
regularises enough. No layer couples examples.

>>> model = transformer(vocabulary_size=100, max_length=80)
>>> sum(parameter.numel() for parameter in model.parameters())
432740
>>> model(torch.tensor([[98, 5, 7], [98, 2, 0]])).shape
torch.Size([2, 3, 100])

References:
    Graves, Schmidhuber: Framewise phoneme classification with bidirectional LSTM (2005).
    Davody et al. (2020), arXiv 2006.10919.
    Vaswani et al.: Attention Is All You Need (2017), arXiv 1706.03762. Xiong et al.: On Layer Normalization in the
    Transformer Architecture (2020), arXiv 2002.04745.
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization. ICLR 2021, table 7.
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
    Decentralized Data. AISTATS 2017.
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021, arXiv 2102.03448, section 5.
"""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sfumato._check import InputError, whole
from sfumato.models.layers import check_normalisation, glorot, is_mapped, sequence_layers

PADDING = 0


def check_tokens(tokens: torch.Tensor, name: str, *, ids: int | None = None) -> None:
    """Refuse anything but whole numbers [n, T] with T >= 1; on a processor also those from `ids` on."""
    if tokens.ndim != 2 or not tokens.shape[1] or tokens.is_floating_point() or tokens.is_complex():
        kind = str(tokens.dtype).removeprefix("torch.")
        raise InputError(
            f"this {name} reads token ids, int64 [n, T], 0 for padding, got {kind} {list(tokens.shape)}; "
            "turn the texts into ids first"
        )
    if ids is None or tokens.device.type != "cpu" or is_mapped(tokens) or not tokens.numel():
        return
    if int(tokens.max()) >= ids or int(tokens.min()) < 0:
        wrong = int(tokens.max()) if int(tokens.max()) >= ids else int(tokens.min())
        raise InputError(
            f"this {name} knows the ids 0 to {ids - 1}, got {wrong}; build it for the vocabulary of the texts, and "
            "with as many oov_buckets"
        )


def lengths_of(tokens: torch.Tensor) -> torch.Tensor:
    """Positions up to the last token that is not padding, int64 [n]; 1 for a sequence of padding only."""
    positions = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return (positions * (tokens != PADDING)).amax(dim=1).clamp_min(1)


def mean_of(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Mean of float [n, T, d] over the first `lengths` positions, float [n, d]."""
    inside = torch.arange(values.shape[1], device=values.device) < lengths[:, None]
    return (values * inside[:, :, None]).sum(dim=1) / lengths[:, None]


class AttentionBlock(nn.Module):
    """Self-attention and a two-layer network, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Map float [n, T, width] to the same shape.

        Args:
            x: a batch of sequences.
            visible: bool, which positions may be attended to: [n, 1, 1, T], the same ones from every position of a
                sequence, or [T, T], those of a column from that of a row.
        """
        rows, steps, width = x.shape
        parts = self.queries_keys_values(self.norm1(x)).view(rows, steps, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if is_mapped(x):  # torch's own is done model by model there
            scores = (queries @ keys.transpose(2, 3)) * queries.shape[3] ** -0.5
            mixed = scores.masked_fill(~visible, -torch.inf).softmax(3) @ values
        else:
            mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)
        x = x + self.output(mixed.transpose(1, 2).reshape(rows, steps, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class BiLSTMClassifier(nn.Module):
    """Embedding, BiLSTM, mean, linear; see `bilstm_classifier`."""

    def __init__(
        self, *, num_classes: int, vocabulary_size: int, embedding_dim: int, hidden: int, layers: int, norm: bool
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, embedding_dim)
        self.norm1 = nn.LayerNorm(embedding_dim) if norm else nn.Identity()
        self.lstm = nn.LSTM(embedding_dim, hidden, layers, batch_first=True, bidirectional=True)
        self.norm2 = nn.LayerNorm(2 * hidden) if norm else nn.Identity()
        self.classifier = nn.Linear(2 * hidden, num_classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids, int64 [n, T], to logits, float [n, num_classes]."""
        check_tokens(tokens, "BiLSTM classifier")
        lengths = lengths_of(tokens)
        words = self.norm1(self.embedding(tokens))
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.classifier(mean_of(self.norm2(outputs), lengths))


def bilstm_classifier(
    num_classes: int,
    *,
    vocabulary_size: int,
    embedding_dim: int = 100,
    hidden: int = 128,
    layers: int = 1,
    normalisation: Literal["none", "layer"] = "none",
    generator: torch.Generator | None = None,
) -> BiLSTMClassifier:
    """Build a BiLSTM text classifier.

    Args:
        num_classes: outputs, >= 1.
        vocabulary_size: ids are 0 (padding) to vocabulary_size - 1; public: never counted from private texts.
        embedding_dim: numbers for each token, >= 1.
        hidden: units in each direction, >= 1.
        layers: LSTMs on top of each other, >= 1.
        normalisation: "none" or "layer".
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """
    whole(num_classes=num_classes, embedding_dim=embedding_dim, hidden=hidden, layers=layers)
    whole(at_least=2, vocabulary_size=vocabulary_size)
    check_normalisation(normalisation, ("none", "layer"))
    model = BiLSTMClassifier(
        num_classes=num_classes,
        vocabulary_size=vocabulary_size,
        embedding_dim=embedding_dim,
        hidden=hidden,
        layers=layers,
        norm=normalisation == "layer",
    )
    glorot(model, generator)
    sequence_layers(model, generator)
    return model


class TransformerClassifier(nn.Module):
    """Embedding and positions, encoder blocks, mean, linear; see `transformer_classifier`."""

    positions: torch.Tensor

    def __init__(
        self, *, num_classes: int, vocabulary_size: int, max_length: int, width: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.register_buffer("positions", _sinusoids(max_length, width), persistent=False)
        self.blocks = nn.ModuleList(AttentionBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids, int64 [n, T], to logits, float [n, num_classes]."""
        check_tokens(tokens, "Transformer classifier")
        steps = tokens.shape[1]
        if steps > len(self.positions):
            raise InputError(
                f"this Transformer reads up to {len(self.positions)} tokens, got {steps}; "
                "cut the texts or build it with max_length=..."
            )
        lengths = lengths_of(tokens)
        seen = torch.arange(steps, device=tokens.device) < lengths[:, None]
        # Rows have length about one and the sinusoids sqrt(width / 2): of one scale only after this factor.
        x = self.embedding(tokens) * self.embedding.embedding_dim**0.5 + self.positions[:steps]
        for block in self.blocks:
            x = block(x, seen[:, None, None, :])
        return self.classifier(mean_of(self.norm(x), lengths))


def _sinusoids(steps: int, width: int) -> torch.Tensor:
    """Vaswani et al., section 3.5, float [steps, width]."""
    rates = 10_000.0 ** -(torch.arange(0, width, 2) / width)
    angles = torch.arange(steps)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def transformer_classifier(
    num_classes: int,
    *,
    vocabulary_size: int,
    max_length: int = 128,
    width: int = 256,
    depth: int = 2,
    heads: int = 4,
    generator: torch.Generator | None = None,
) -> TransformerClassifier:
    """Build a Transformer text classifier with Glorot-uniform layers.

    Args:
        num_classes: outputs, >= 1.
        vocabulary_size: ids are 0 (padding) to vocabulary_size - 1; public: never counted from private texts.
        max_length: tokens in the longest text, >= 1.
        width: numbers for each token, an even multiple of heads.
        depth: encoder blocks, >= 1.
        heads: attention heads, >= 1.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or width is no even multiple of heads.
    """
    whole(num_classes=num_classes, max_length=max_length, width=width, depth=depth, heads=heads)
    whole(at_least=2, vocabulary_size=vocabulary_size)
    if width % heads or width % 2:
        raise InputError(f"width must be even and a multiple of heads={heads}, got {width}")
    model = TransformerClassifier(
        num_classes=num_classes,
        vocabulary_size=vocabulary_size,
        max_length=max_length,
        width=width,
        depth=depth,
        heads=heads,
    )
    glorot(model, generator)
    sequence_layers(model, generator)
    return model


_ALPHABET = 256  # ids; beyond it they are taken for words


class LSTMLanguageModel(nn.Module):
    """Embedding, LSTMs, logits; see `lstm`.

    Attributes:
        local_parameters: fullmatches the names of what is a user's own; "" matches none.
        row_tables: no table's row is chosen by one column alone.
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        embedding_dim: int,
        hidden: int,
        layers: int,
        projection: int | None,
        oov_buckets: int,
        user_features: int,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, embedding_dim)
        self.oov_embedding = nn.Embedding(oov_buckets, embedding_dim) if oov_buckets else None
        self.user_vector = nn.Parameter(torch.zeros(user_features)) if user_features else None
        own = {"oov_embedding.weight": self.oov_embedding, "user_vector": self.user_vector}
        self.local_parameters = "|".join(name for name, part in own.items() if part is not None)
        self.row_tables: dict[str, int] = {}
        self.lstm = nn.LSTM(embedding_dim + user_features, hidden, layers, batch_first=True)
        self.projection = nn.Identity() if projection is None else nn.Linear(hidden, projection)
        self.output = nn.Linear(hidden if projection is None else projection, vocabulary_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids, int64 [n, T], to logits of the next token at each place, float [n, T, vocabulary_size].

        Ids from vocabulary_size on are those of the buckets.
        """
        buckets = 0 if self.oov_embedding is None else self.oov_embedding.num_embeddings
        check_tokens(tokens, "LSTM", ids=self.embedding.num_embeddings + buckets)
        states = self._read(tokens)
        if is_mapped(states):
            states = _unrolled(self.lstm, states)
        else:
            states, _ = self.lstm(states)
        return self.output(self.projection(states))

    def _read(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the LSTMs read at each step, float [n, T, d]."""
        if self.oov_embedding is None:
            states = self.embedding(tokens)
        else:
            size = self.embedding.num_embeddings
            other = self.oov_embedding((tokens - size).clamp_min(0))
            states = torch.where((tokens < size)[:, :, None], self.embedding(tokens.clamp_max(size - 1)), other)
        if self.user_vector is None:
            return states
        return torch.cat([states, self.user_vector.expand(*states.shape[:2], -1)], 2)


def _unrolled(lstm: nn.LSTM, states: torch.Tensor) -> torch.Tensor:
    """The LSTMs one after the other, from float [n, T, d] to [n, T, hidden]."""
    for layer in range(lstm.num_layers):
        into, back, bias, other = (
            getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        gates = functional.linear(states, into, bias + other)
        hidden = cell = states.new_zeros(states.shape[0], lstm.hidden_size)
        outputs = []
        for step in gates.unbind(1):
            let_in, forget, candidate, let_out = (step + functional.linear(hidden, back)).chunk(4, 1)
            cell = forget.sigmoid() * cell + let_in.sigmoid() * candidate.tanh()
            hidden = let_out.sigmoid() * cell.tanh()
            outputs.append(hidden)
        states = torch.stack(outputs, 1)
    return states


def lstm(
    *,
    vocabulary_size: int,
    embedding_dim: int | None = None,
    hidden: int | None = None,
    layers: int | None = None,
    projection: int | None = None,
    oov_buckets: int = 0,
    user_features: int = 0,
    generator: torch.Generator | None = None,
) -> LSTMLanguageModel:
    """Build an LSTM language model.

    Args:
        vocabulary_size: ids are 0 (padding) to vocabulary_size - 1; public: never counted from private texts.
        embedding_dim: numbers for each token, >= 1; None for 8 (characters) or 96 (words).
        hidden: units of each LSTM, >= 1; None for 256 or 670.
        layers: LSTMs on top of each other, >= 1; None for 2 or 1.
        projection: units of the layer between the last LSTM and the logits, 0 for no such layer; None for 0 or 96.
        oov_buckets: ids of words outside of the vocabulary, with vectors that are a user's own; 0 for no such ids.
        user_features: numbers that are a user's own and that every step reads; 0 for none.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1 (vocabulary_size: >= 2; projection, oov_buckets, user_features:
            >= 0).
    """
    whole(at_least=2, vocabulary_size=vocabulary_size)
    usual = (8, 256, 2, 0) if vocabulary_size <= _ALPHABET else (96, 670, 1, 96)
    given = (embedding_dim, hidden, layers, projection)
    embedding_dim, hidden, layers, projection = (
        default if value is None else value for value, default in zip(given, usual, strict=True)
    )
    whole(embedding_dim=embedding_dim, hidden=hidden, layers=layers)
    whole(at_least=0, projection=projection, oov_buckets=oov_buckets, user_features=user_features)
    model = LSTMLanguageModel(
        vocabulary_size=vocabulary_size,
        embedding_dim=embedding_dim,
        hidden=hidden,
        layers=layers,
        projection=projection or None,
        oov_buckets=oov_buckets,
        user_features=user_features,
    )
    glorot(model, generator)
    sequence_layers(model, generator)
    return model


class TransformerLanguageModel(nn.Module):
    """Embedding and positions, blocks, logits; see `transformer`."""

    def __init__(self, *, vocabulary_size: int, max_length: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList(AttentionBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary_size)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids, int64 [n, T], to logits of the next token at each place, float [n, T, vocabulary_size]."""
        check_tokens(tokens, "Transformer")
        steps, most = tokens.shape[1], self.positions.num_embeddings
        if steps > most:
            raise InputError(
                f"this Transformer reads up to {most} tokens, got {steps}; cut the texts or build it with "
                "max_length=..."
            )
        places = torch.arange(steps, device=tokens.device)
        x = self.embedding(tokens) + self.positions(places)
        seen = places[:, None] >= places
        for block in self.blocks:
            x = block(x, seen)
        return self.output(self.norm(x))


def transformer(
    *,
    vocabulary_size: int,
    max_length: int,
    width: int = 128,
    depth: int = 2,
    heads: int = 4,
    generator: torch.Generator | None = None,
) -> TransformerLanguageModel:
    """Build a Transformer language model with Glorot-uniform layers.

    Args:
        vocabulary_size: ids are 0 (padding) to vocabulary_size - 1; public: never counted from private texts.
        max_length: tokens in the longest sequence, >= 1.
        width: numbers for each token, a multiple of heads.
        depth: blocks, >= 1.
        heads: attention heads, >= 1.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or width is no multiple of heads.
    """
    whole(max_length=max_length, width=width, depth=depth, heads=heads)
    whole(at_least=2, vocabulary_size=vocabulary_size)
    if width % heads:
        raise InputError(f"width must be a multiple of heads={heads}, got {width}")
    model = TransformerLanguageModel(
        vocabulary_size=vocabulary_size, max_length=max_length, width=width, depth=depth, heads=heads
    )
    glorot(model, generator)
    sequence_layers(model, generator)
    return model
