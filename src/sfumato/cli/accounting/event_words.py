"""An event in words, for tables: what was released, on which sample.

>>> from sfumato.accounting import Gaussian
>>> in_words(Gaussian(1.1).poisson(0.01) * 1000)
'1,000 × gaussian (noise multiplier 1.1), Poisson sample 0.01'
>>> from sfumato.accounting import NoisyVote
>>> in_words(NoisyVote(noise_std=2.0))  # what was left out is not told
'1 × noisy vote (noise std 2, level agent)'
"""

from dataclasses import fields
from typing import Any

from sfumato.accounting import Event, Poisson, WithoutReplacement, terms

_LONG = 60  # characters of one value
_MOST = 4  # numbers of one value that are shown


def in_words(event: Event) -> str:
    """Every single event with its count; "nothing" for none."""
    parts = [f"{count:,} × {single_in_words(single)}" for single, count in terms(event)]
    return " + ".join(parts) or "nothing"


def single_in_words(event: Event) -> str:
    """One single event, without its count."""
    if isinstance(event, Poisson):
        return f"{single_in_words(event.event)}, Poisson sample {event.sampling_rate:g}"
    if isinstance(event, WithoutReplacement):
        return f"{single_in_words(event.event)}, {event.sample_size:,} of {event.population:,}"
    values = [(field.name, getattr(event, field.name)) for field in fields(event)]  # pyright: ignore[reportArgumentType]
    inside = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in values if value not in ("", None))
    name = event.kind.replace("_", " ")
    return f"{name} ({inside})" if inside else name


def _value(value: Any) -> str:
    if isinstance(value, Event):
        return in_words(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple) and len(value) > _MOST and all(isinstance(each, float) for each in value):
        return f"of {len(value):,} numbers"
    text = f"[{', '.join(map(_value, value))}]" if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
