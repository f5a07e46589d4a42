"""EHR-Safe with a guarantee of epsilon 8 for a stay in intensive care, learned from 2,993. See README.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import ehr_recipe
from ehr_recipe import Recipe, intensive_care

from sfumato.synthesis import EHRSafe

EPSILON = 8.0
PRIVATE = "EHR-Safe, ε = 8"
PLAN = EHRSafe(
    epsilon=EPSILON,
    horizon=2880.0,
    max_visits=100,
    epochs=6,
    batch_size=256,
    learning_rate=4e-3,
    gan_steps=150,
    critic_steps=2,
    gan_batch_size=256,
    gan_hidden=128,
    gan_learning_rate=1e-3,
    average_decay=0.95,
    noise=64,
    latent=32,
    calibrated_on=500,
)


RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    dataset="PhysioNet 2012, set A",
    parts=intensive_care,
    methods={PRIVATE: PLAN},
    more={f"{PRIVATE}, ten times as many": (PRIVATE, 10)},
)


if __name__ == "__main__":
    ehr_recipe.main(RECIPE)
