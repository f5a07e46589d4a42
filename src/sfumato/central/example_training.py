"""How examples go through a model: a part of plans that train on examples."""

from dataclasses import dataclass
from typing import Literal

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import Kinds


@dataclass(frozen=True, kw_only=True)
class ExampleTraining:
    """How examples go through the model.

    Attributes:
        augmentation: of pictures: "flip", or "crop_flip", drawn anew in each step.
        copies: of each picture, augmented and averaged before clipping.
        per_user: of a user, examples that count in a step, at most; a public number. They are chosen at random, anew in
            each step, and the gradient of their mean loss is clipped as one: the unit is the user, whom a column of the
            data names. None takes every example by itself.
        micro_batch: examples, or users, that go through the model at once; None measures how many fit. No result
            depends on it, but where the model draws random numbers (dropout).
        memory_budget: MiB for a micro-batch; None for half of the free memory of a GPU, 512 on a CPU.
        precision: "bfloat16" runs the model under autocast; gradients, norms and sums stay in single precision or more.
    """

    augmentation: Literal["none", "flip", "crop_flip"] = "none"
    copies: int = 1
    per_user: int | None = None
    micro_batch: int | None = None
    memory_budget: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        _check.one_of(("none", "flip", "crop_flip"), augmentation=self.augmentation)
        _check.one_of(("float32", "bfloat16"), precision=self.precision)
        _check.whole(copies=self.copies)
        for name in ("per_user", "micro_batch", "memory_budget"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})
        if self.per_user is not None and self.augmentation != "none":
            raise InputError(
                f"per_user={self.per_user} takes several examples of a user, and augmentation={self.augmentation} "
                "several views of one; use augmentation=none"
            )
        if self.copies > 1 and self.augmentation == "none":
            raise InputError(
                f"{self.copies} copies of one picture are all the same; choose an augmentation, flip for example"
            )


EXAMPLES = Kinds[ExampleTraining]({"examples": ExampleTraining})
