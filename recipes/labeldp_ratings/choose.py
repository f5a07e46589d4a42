"""The settings of run.py: one set for all rows, with the lowest mean error on the validation tenth, one seed.

The mean is over RR on bins, Laplace and RR at epsilon 1 and 4, and the model without privacy. Prints a line a trial.
Choosing looks at values that no one hid; a holder of private values chooses on public ones.
"""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run

RATES, DECAYS = (0.003, 0.01, 0.03), (1e-4, 3e-4, 1e-3)

if __name__ == "__main__":
    split = run.parts()
    for rate, decay in itertools.product(RATES, DECAYS):
        plan = replace(run.PLAN, **{"training.learning_rate": rate, "training.weight_decay": decay}, seed=0)
        found = [run.error(run.trained(plan, None, 0.0, split.train)[0], split.validation)]
        for name, epsilon in itertools.product(("RR on bins", "Laplace", "RR"), (1.0, 4.0)):
            found.append(run.error(run.trained(plan, run.METHODS[name], epsilon, split.train)[0], split.validation))
        reported = " ".join(f"{each:.3f}" for each in found)
        print(f"rate {rate:g}, decay {decay:g}: mean {np.mean(found):.4f} of {reported}", flush=True)
