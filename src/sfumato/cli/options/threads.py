"""How many CPU threads a command computes on."""

import os

from sfumato._check import between, whole

_MOST_THREADS = 1024


def use_threads(threads: int | None) -> None:
    """Compute on so many threads; None leaves it to torch.

    Raises:
        InputError: it is no number of threads.
    """
    if threads is None:
        return
    whole(threads=threads)
    between(1, _MOST_THREADS, threads=threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # also tells a team of processes not to divide the cores
    import torch  # late: a command says what is wrong before it

    torch.set_num_threads(threads)
