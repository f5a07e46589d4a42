"""A small Transformer encoder for texts: attention built from linear layers, mean over the tokens, linear classifier.

Blocks normalise first (Xiong et al. 2020); positions are sinusoids, which have nothing to train. Queries, keys, values
and outputs are `nn.Linear`, so each trained layer has its own rule for per-example gradients. Id 0 is padding behind
the end of a text: it is neither attended to nor averaged, so an example's output does not depend on how far its batch
is padded. Attention is within one example. Without dropout: the noise of private training regularises enough.

References:
    Vaswani et al.: Attention Is All You Need (2017), arXiv 1706.03762. Xiong et al.: On Layer Normalization in the
    Transformer Architecture (2020), arXiv 2002.04745.

>>> model = transformer_classifier(4, vocabulary_size=10_000)
>>> sum(parameter.numel() for parameter in model.parameters())
4141060
>>> model(torch.tensor([[5, 7, 2, 0, 0], [1, 2, 3, 4, 5]])).shape
torch.Size([2, 4])
"""

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers.initialise import glorot, sequence_layers
from sfumato.models.layers.tokens import AttentionBlock, check_tokens, lengths_of, mean_of


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
