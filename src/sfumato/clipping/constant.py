"""A clip norm that stays as it was given.

>>> ConstantClipNorm(clip_norm=1.5).current
1.5
"""

from dataclasses import dataclass

from sfumato import _check


@dataclass(frozen=True, kw_only=True)
class ConstantClipNorm:
    """A fixed bound, or none.

    Attributes:
        clip_norm: bound on the L2 norm of a contribution, > 0; None for a run without privacy.
    """

    clip_norm: float | None

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            _check.positive(clip_norm=self.clip_norm, remedy="for a run without privacy use clip_norm=None")

    @property
    def current(self) -> float | None:
        """The bound for the next round."""
        return self.clip_norm
