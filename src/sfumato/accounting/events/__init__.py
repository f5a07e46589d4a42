"""What can be released, one kind of event a file."""

from sfumato.accounting.events.claims import NonPrivate
from sfumato.accounting.events.event import Composition, Event, Repeated, Unknown, compose, event_from_json, terms
from sfumato.accounting.events.gaussian import Gaussian, combined_shift
from sfumato.accounting.events.sampling import Poisson, WithoutReplacement

__all__ = [
    "Composition",
    "Event",
    "Gaussian",
    "NonPrivate",
    "Poisson",
    "Repeated",
    "Unknown",
    "WithoutReplacement",
    "combined_shift",
    "compose",
    "event_from_json",
    "terms",
]
