"""All networks of a plan, built from its settings and the schema alone."""

import warnings

import torch
from torch import Tensor

from sfumato.data.ehr.schema import Column, Schema
from sfumato.synthesis.ehr_safe.categories import CategoryCodec
from sfumato.synthesis.ehr_safe.critic import Critic
from sfumato.synthesis.ehr_safe.generator import Generator
from sfumato.synthesis.ehr_safe.outline.summaries import summary_width
from sfumato.synthesis.ehr_safe.scales import ADDED
from sfumato.synthesis.ehr_safe.sequences import SequenceCodec, Sizes
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings


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
        self.generator = Generator(settings.noise, settings.gan_hidden, settings.latent)
        self.critic = Critic(settings.latent, settings.gan_hidden)
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
