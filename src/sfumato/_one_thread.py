"""Our threads share the cores, with one thread of torch in each.

torch's own threads wait for each other by spinning, many times a second; and the number of them that a thread sets for
itself would stay for threads that start later.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.Lock()
_inside: list[int] = []  # the number before the first of those that are open, once for each


@contextmanager
def one_thread_each() -> Iterator[None]:
    """One thread of torch in an operation; the number before is there again when the last of those open has ended."""
    with _LOCK:
        _inside.append(_inside[0] if _inside else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            before = _inside.pop()
            if not _inside:
                torch.set_num_threads(before)
