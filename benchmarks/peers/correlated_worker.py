"""One maker of noise that is correlated over rounds, in a process of its own; see `correlated_noise.py`.

    python correlated_worker.py '{"contender": "sfumato", "kind": "banded", "size": 10000000, "threads": 2}'

On standard input, a line `round` adds one round's noise to a sum of `size` numbers and is answered with `{"ms", "cpu",
"kept", "peak"}`: milliseconds of the wall clock and of the processor, MiB of kept vectors (None where a peer does not
say) and the peak of the process. A line `{"bands" or "buffers": n, "error": …}` optimises coefficients for the limits
below, with nothing remembered, and is answered with `{"ms", "coefficients"}` of C.

What a peer is given is what is fastest for it: JAX compiles the whole step and may overwrite its state.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

BANDS, FIRST, ROUNDS = 16, 64, 2048
LIMITS = {"rounds": 2048, "max_participations": 4, "min_separation": 511}
SCALES, DECAYS = (0.2, 0.15, 0.1, 0.05), (0.999, 0.98, 0.85, 0.4)  # of the buffers; the time does not depend on them

Step = Callable[[], float | None]


def root(power: float) -> list[float]:
    """The first coefficients of (1 − x)^power."""
    found = [1.0]
    for place in range(1, BANDS):
        found.append(found[-1] * (place - 1 - power) / place)
    return found


def sfumato(kind: str, size: int, threads: int) -> Step:
    """Ours: rounds from `FIRST` on, on a sum in double precision."""
    import torch

    from sfumato._random import RandomSource
    from sfumato.mechanisms import BISR, BLT, Banded, Gaussian, Tree

    torch.set_num_threads(threads)
    total, source = torch.zeros(size, dtype=torch.float64), RandomSource.from_os()
    of_kind = {
        "independent": Gaussian(),
        "tree": Tree(estimator="efficient", rounds=ROUNDS),
        "plain tree": Tree(estimator="plain", rounds=ROUNDS),
        "banded": Banded(coefficients=tuple(root(-0.5)), rounds=ROUNDS),
        "BLT": BLT(coefficients=(*SCALES, *DECAYS), rounds=ROUNDS),
        "BISR": BISR(coefficients=tuple(root(0.5)), rounds=ROUNDS),
    }
    mechanism = replace(of_kind[kind], noise_multiplier=1.0)
    going = FIRST

    def step() -> float:
        nonlocal going
        mechanism.release(total, scale=1.0, round=going, source=source)
        going += 1
        if isinstance(mechanism, Gaussian):
            return 0.0
        ((_, rows),) = mechanism._running.values()
        return rows.kept_bytes / 2**20

    return step


def jax_privacy(kind: str, size: int, threads: int) -> Step:
    """A compiled step of JAX Privacy's privatizer; XLA takes the cores that this process may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import jax
    from jax_privacy import noise_addition
    from jax_privacy.matrix_factorization import buffered_toeplitz, streaming_matrix, toeplitz

    if kind == "independent":
        matrix = streaming_matrix.identity()
    elif kind == "banded":
        matrix = toeplitz.inverse_as_streaming_matrix(jax.numpy.array(root(-0.5)))
    else:
        with jax.enable_x64(True):
            blt = buffered_toeplitz.BufferedToeplitz.build(buf_decay=DECAYS, output_scale=SCALES)
        import numpy as np

        single = {name: np.asarray(getattr(blt, name), np.float32) for name in ("buf_decay", "output_scale")}
        matrix = buffered_toeplitz.StreamingMatrixBuilder(**single).build_inverse()
    privatizer = noise_addition.matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=0)
    total = jax.numpy.zeros(size)
    state = privatizer.init(total)
    update = jax.jit(privatizer.update, donate_argnums=(0, 1))

    def step() -> None:
        nonlocal total, state
        total, state = jax.block_until_ready(update(total, state))

    return step


def opake(kind: str, size: int, threads: int) -> Step:
    """Opake's noise function."""
    import torch
    from opake.dpftrl import noise
    from opake.random import key
    from opake.types import clipped

    torch.set_num_threads(threads)
    of_kind = {
        "independent": noise.identity_strategy,
        "banded": lambda: noise.band_mf_strategy(bands=BANDS),
        "BLT": lambda: noise.blt_strategy(max_buffers=len(SCALES)),
        "BISR": lambda: noise.bisr_strategy(bandwidth=BANDS),
    }
    total = {"all": torch.zeros(size)}
    add_noise, state = noise.mf_gaussian_noise(
        total, of_kind[kind](), n_steps=256, min_sep=64, max_participations=4, noise_multiplier=1.0, key=key(0)
    )

    def step() -> None:
        nonlocal state
        found, state = add_noise(clipped(total, max_norm=1.0), state)
        total["all"] = found.pytree["all"]

    return step


CONTENDERS = {"sfumato": sfumato, "jax-privacy": jax_privacy, "opake": opake}


def ours_optimised(order: dict[str, Any]) -> list[float] | None:
    """Coefficients of C, scaled columns and all, are ours to ask for again: only the time is wanted."""
    from sfumato.accounting import Participation, strategy_search

    limits, error = Participation(**LIMITS), order["error"]
    if "buffers" in order:
        search, options = strategy_search.optimize_blt, {"buffers": order["buffers"]}
    elif "bands" in order:
        search, options = strategy_search.optimize_banded, {"bands": order["bands"]}
    else:
        search, options = strategy_search.banded_inverse_square_root, {}
    search.cache_clear()
    search(limits, error=error, **options)
    return None


def jax_optimised(order: dict[str, Any]) -> list[float]:
    """Coefficients of C; banded ones know nothing of the limits there. Compiling is a part of it, as in any run."""
    import jax
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

    jax.clear_caches()
    rounds, error = LIMITS["rounds"], order["error"]
    if "bands" in order:
        reduction = {"mean": jax.numpy.mean, "max": jax.numpy.max}[error]
        found = toeplitz.optimize_banded_toeplitz(rounds, order["bands"], reduction_fn=reduction)
        return [float(number) for number in found]
    found = buffered_toeplitz.optimize(
        n=rounds,
        min_sep=LIMITS["min_separation"] + 1,
        max_participations=LIMITS["max_participations"],
        error=error,
        min_buffers=order["buffers"],
        max_buffers=order["buffers"],
    )
    return [float(number) for number in found.toeplitz_coefs(rounds)]


OPTIMISED = {"sfumato": ours_optimised, "jax-privacy": jax_optimised}


def main() -> None:
    """Answer until the input ends."""
    given = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries log to standard output
    step = None
    if "kind" in given:
        step = CONTENDERS[given["contender"]](given["kind"], given["size"], given["threads"])
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        clock, processor = time.perf_counter(), time.process_time()
        if line.strip() == "round":
            assert step is not None
            answer: dict[str, Any] = {"kept": step()}
        else:
            answer = {"coefficients": OPTIMISED[given["contender"]](json.loads(line))}
        answer |= {"ms": 1e3 * (time.perf_counter() - clock), "cpu": 1e3 * (time.process_time() - processor)}
        answer["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
