"""The one check of a share that is kept out of training, whether of users or of examples."""

from sfumato._check import InputError


def refuse_share(**shares: float) -> None:
    """Refuse what is no share in [0, 1).

    Raises:
        InputError: a share is out of range; for a whole number, the line says how to get one.
    """
    for name, share in shares.items():
        if not 0 <= share < 1:  # NaN, too
            remedy = "0 keeps nobody back; for an exact number name them, or give --test"
            raise InputError(f"{name} must be a share >= 0 and below 1, got {share:g}; {remedy}")
