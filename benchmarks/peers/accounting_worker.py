"""One accountant in a process of its own: reads tasks, one JSON line each, and answers with what they took.

    python accounting_worker.py sfumato|dp-accounting|prv-accountant

A task is {"task": "epsilon", "z", "q", "steps", "delta"} or, for sfumato only, one of the others below. The answer has
"ms", and for an epsilon "low" and "high" (dp-accounting knows an upper bound only). Nothing that an earlier task
computed is used again: sfumato's memory of grids is emptied before each.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

Answer = dict[str, Any]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and milliseconds."""
    start = time.perf_counter()
    result = work()
    return result, 1e3 * (time.perf_counter() - start)


def forget() -> None:
    """Empty every memory of sfumato's accountants."""
    import functools
    import gc

    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper) and found.__module__.startswith("sfumato"):
            found.cache_clear()


class Sfumato:
    """This project."""

    def __init__(self) -> None:
        from sfumato import accounting

        self.acc = accounting
        accounting.guarantee(accounting.Gaussian(1.0).poisson(0.1) * 2).epsilon(1e-5)  # imports SciPy, as peers have

    def run(self, z: float, q: float, steps: int) -> Any:
        return self.acc.Gaussian(z).poisson(q) * steps

    def epsilon(self, z: float, q: float, steps: int, delta: float) -> Answer:
        forget()
        (low, high), ms = timed(lambda: self.acc.guarantee(self.run(z, q, steps)).epsilon_interval(delta))
        return {"ms": ms, "low": low, "high": high}

    def tree(self) -> Answer:
        """The production run of the DP-FTRL blog post."""
        forget()
        run = self.acc.TreeAggregation
        (low, high), ms = timed(
            lambda: self.acc.guarantee(
                run(noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313), "zero_out"
            ).epsilon_interval(1e-10)
        )
        return {"ms": ms, "low": low, "high": high}

    def calibrate(self) -> Answer:
        forget()
        z, ms = timed(
            lambda: self.acc.calibrate(lambda z: self.acc.Gaussian(z).poisson(0.01) * 10_000, epsilon=2.0, delta=1e-5)
        )
        return {"ms": ms, "z": z}

    def tradeoff(self) -> Answer:
        """1,000 points of the curve of a run that is composed already."""
        import numpy as np

        forget()
        guarantee = self.acc.guarantee(self.run(1.0, 0.01, 10_000))
        _, composing = timed(lambda: guarantee.tradeoff(0.5))
        rates = np.linspace(0.0, 1.0, 1000)
        _, ms = timed(lambda: guarantee.tradeoff(rates))
        return {"ms": ms, "composing": composing}

    def next_step(self) -> Answer:
        """Asking for the epsilon of a run with one step more; and for that of the whole run anew."""
        from sfumato.accounting.guarantees import RunningCost

        forget()
        run = RunningCost(self.acc.Gaussian(1.0).poisson(0.01), delta=1e-5)
        _, anew = timed(lambda: run.epsilon_after(10_000))
        run = RunningCost(self.acc.Gaussian(1.0).poisson(0.01), delta=1e-5)
        times = [timed(partial(run.epsilon_after, steps))[1] for steps in range(10_001, 10_006)]
        return {"ms": sorted(times)[2], "anew": anew}


class DpAccounting:
    """Google's dp-accounting: PLDAccountant as its documentation uses it."""

    def __init__(self) -> None:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        self.dp, self.accountant = dp_accounting, PLDAccountant

    def epsilon(self, z: float, q: float, steps: int, delta: float) -> Answer:
        event = self.dp.SelfComposedDpEvent(self.dp.PoissonSampledDpEvent(q, self.dp.GaussianDpEvent(z)), steps)
        high, ms = timed(lambda: self.accountant().compose(event).get_epsilon(delta))
        return {"ms": ms, "low": None, "high": float(high)}


class PrvAccountant:
    """Microsoft's prv-accountant, with the error that its command line asks for by default."""

    def __init__(self) -> None:
        import prv_accountant

        self.prv = prv_accountant

    def epsilon(self, z: float, q: float, steps: int, delta: float) -> Answer:
        def work() -> tuple[float, float, float]:
            step = self.prv.PoissonSubsampledGaussianMechanism(noise_multiplier=z, sampling_probability=q)
            accountant = self.prv.PRVAccountant(
                prvs=step, max_self_compositions=steps, eps_error=0.1, delta_error=delta / 1000
            )
            return accountant.compute_epsilon(delta=delta, num_self_compositions=steps)

        (low, _, high), ms = timed(work)
        return {"ms": ms, "low": float(low), "high": float(high)}


CONTENDERS = {"sfumato": Sfumato, "dp-accounting": DpAccounting, "prv-accountant": PrvAccountant}


def main() -> None:
    """Answer until the input ends."""
    contender = CONTENDERS[sys.argv[1]]()
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            answer = getattr(contender, order.pop("task"))(**order)
        except Exception as error:  # a peer may refuse a run; the table says so
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answer["grown_mb"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
