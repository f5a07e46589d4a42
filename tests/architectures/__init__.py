"""Small random networks as people bring them: those of transformers and those of torch, each with tiny records.

What a model of this list does, `benchmarks/model_table.py` prints; what it must do, `tests/models` asks.
"""

from architectures import hugging_face, plain_torch
from architectures.architecture import Architecture

ARCHITECTURES: dict[str, Architecture] = {
    each.name: each for each in (*hugging_face.ARCHITECTURES, *plain_torch.ARCHITECTURES)
}
"""By name."""
