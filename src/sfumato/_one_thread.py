"""Our threads share the cores, with one thread of torch in each.

torch's own threads wait for each other by spinning, many times a second; and the number of them that a thread sets for
itself would stay for threads that start later.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_each() -> Iterator[None]:
    """One thread of torch in an operation; the number before is there again afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
