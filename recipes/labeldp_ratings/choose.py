"""The settings of run.py, with the lowest error on the validation tenth, one seed: one set for all rows of reports.

Its mean is over RR on bins, Laplace and RR at epsilon 1 and 4, and the model without privacy. Then the temperature of
LP-2ST's prior, and the rate of DP-SGD, at epsilon 1 and 4. Prints a line a trial. Choosing looks at values that no one
hid; a holder of private values chooses on public ones.
"""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run

RATES, DECAYS = (0.003, 0.01, 0.03), (1e-4, 3e-4, 1e-3)
TEMPERATURES, STEPS = (0.5, 1.0, 2.0), (1.7, 5.0, 15.0, 45.0)
CHOSEN_AT = (1.0, 4.0)  # epsilon

if __name__ == "__main__":
    split = run.parts()
    for rate, decay in itertools.product(RATES, DECAYS):
        plan = replace(run.PLAN, **{"training.learning_rate": rate, "training.weight_decay": decay}, seed=0)
        found = [run.error(run.trained(plan, None, 0.0, split.train)[0], split.validation)]
        for name, epsilon in itertools.product(("RR on bins", "Laplace", "RR"), CHOSEN_AT):
            found.append(run.error(run.trained(plan, run.METHODS[name], epsilon, split.train)[0], split.validation))
        reported = " ".join(f"{each:.3f}" for each in found)
        print(f"rate {rate:g}, decay {decay:g}: mean {np.mean(found):.4f} of {reported}", flush=True)
    seeded = replace(run.PLAN, seed=0)
    staged, gradients = run.METHODS["LP-2ST"], run.GRADIENTS
    assert isinstance(staged, run.LPMST)
    others = {f"LP-2ST, temperature {value:g}": replace(staged, temperature=value) for value in TEMPERATURES}
    others |= {f"DP-SGD, rate {rate:g}": gradients.replace(**{"server.learning_rate": rate}) for rate in STEPS}
    for name, method in others.items():
        found = [
            run.error(run.trained(seeded, method, epsilon, split.train)[0], split.validation) for epsilon in CHOSEN_AT
        ]
        print(f"{name}: " + ", ".join(f"{error:.3f} at ε = {at:g}" for error, at in zip(found, CHOSEN_AT)), flush=True)
