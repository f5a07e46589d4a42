"""A text classifier: embedding, bidirectional LSTM, mean over the tokens, linear layer.

Id 0 is padding behind the end of a text. Sequences are packed, so that the backward direction starts at a text's own
last token and an example's output does not depend on how far its batch is padded. With `normalisation="layer"`, layer
norm follows the embedding and the LSTM (Davody et al.: after every trained layer but the last). 1,236,548 parameters
for a vocabulary of 10,000 and four classes. No layer couples examples.

References:
    Graves, Schmidhuber: Framewise phoneme classification with bidirectional LSTM (2005).
    Davody et al. (2020), arXiv 2006.10919.

>>> model = bilstm_classifier(4, vocabulary_size=10_000)
>>> sum(parameter.numel() for parameter in model.parameters())
1236548
>>> model(torch.tensor([[5, 7, 2, 0, 0], [1, 2, 3, 4, 5]])).shape
torch.Size([2, 4])
"""

from typing import Literal

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sfumato._check import whole
from sfumato.models.layers.blocks import check_normalisation
from sfumato.models.layers.initialise import glorot, sequence_layers
from sfumato.models.layers.tokens import check_tokens, lengths_of, mean_of


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
