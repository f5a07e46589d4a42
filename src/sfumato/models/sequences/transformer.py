"""A small Transformer decoder: each place attends to itself and those before it, and tells the next token.

Blocks normalise first (Xiong et al. 2020), positions are learned, the output layer is its own. Padding stands behind
the end, so nothing of it reaches a token before it. Without dropout: the noise of private training regularises enough.
No layer couples examples.

References:
    Vaswani et al.: Attention Is All You Need (2017), arXiv 1706.03762. Xiong et al.: On Layer Normalization in the
    Transformer Architecture (2020), arXiv 2002.04745.

>>> model = transformer(vocabulary_size=100, max_length=80)
>>> sum(parameter.numel() for parameter in model.parameters())
432740
>>> model(torch.tensor([[98, 5, 7], [98, 2, 0]])).shape
torch.Size([2, 3, 100])
"""

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers.initialise import glorot, sequence_layers
from sfumato.models.layers.tokens import AttentionBlock, check_tokens


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
        """Map token ids, int64 [n, T], to logits of the token behind each, float [n, T, vocabulary_size]."""
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
