"""What a grid of losses can hold; a pair beyond it is refused by name, and Renyi bounds take over."""

from sfumato.accounting.events.event import Unknown

_LEAST_SHIFT = 1e-7
_LARGEST_SHIFT = 20.0  # its losses stay below 700, the logarithm of the largest double


def require_grid(event: object, shift: float) -> None:
    """Refuse a pair whose largest shift, in units of the noise, no grid can hold.

    Raises:
        Unknown: the shift is too small or too large.
    """
    if not _LEAST_SHIFT <= shift <= _LARGEST_SHIFT:
        size = "much" if shift < _LEAST_SHIFT else "little"
        raise Unknown(f'{type(event).__name__} has too {size} noise for method="pld"; use "rdp"')
