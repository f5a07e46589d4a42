"""A language model: embedding, LSTMs, a narrow layer if there is one, and logits of the next token at every place.

What it is by default are the networks of the federated text tasks: for words, embedding 96, one LSTM of 670, a layer of
96 (4,050,748 parameters at 10,004 ids, and 2,680 of torch's second bias); for characters, embedding 8 and two LSTMs of
256. An alphabet is what has at most 256 ids. Padding stands behind the end, so it reaches no logit of a token before
it. No layer couples examples.

Two parts can be a user's own, for training that leaves them with the user (`local_parameters`): vectors of words
outside of the vocabulary, whose ids stand behind all others (`sfumato.data.text_users`), and a vector of the user that
every step reads beside its token.

While several clients are mapped over (`torch.func.vmap`), the recurrence is computed here, step by step: torch's own
cannot be mapped on a GPU.

References:
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization. ICLR 2021, table 7.
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
    Decentralized Data. AISTATS 2017.
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021, arXiv 2102.03448, section 5.

>>> model = lstm(vocabulary_size=10_004)
>>> sum(parameter.numel() for parameter in model.parameters()) - 4 * 670
4050748
>>> lstm(vocabulary_size=100)(torch.tensor([[98, 5, 7], [98, 2, 0]])).shape
torch.Size([2, 3, 100])
>>> own = lstm(vocabulary_size=100, oov_buckets=50, user_features=4)
>>> own(torch.tensor([[98, 5, 149]])).shape, own.local_parameters
(torch.Size([1, 3, 100]), 'oov_embedding.weight|user_vector')
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import whole
from sfumato.models.layers.initialise import glorot, sequence_layers
from sfumato.models.layers.mapped import is_mapped
from sfumato.models.layers.tokens import check_tokens

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
        """Map token ids, int64 [n, T], to logits of the token behind each, float [n, T, vocabulary_size].

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
