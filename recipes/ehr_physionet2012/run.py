"""4,000 stays in intensive care: EHR-Safe next to three recurrent GANs and two controls. See README.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import ehr_recipe
from ehr_baselines import CRNNGAN, RCGAN, TimeGAN
from ehr_recipe import CONTROLS, Recipe, intensive_care

from sfumato.synthesis import EHRSafe

RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    dataset="PhysioNet 2012, set A",
    parts=intensive_care,
    methods={
        "EHR-Safe": EHRSafe(),
        "TimeGAN": TimeGAN(embedding_steps=400, supervised_steps=200, steps=100, learning_rate=3e-3),
        "RC-GAN": RCGAN(steps=1_000),
        "C-RNN-GAN": CRNNGAN(pretraining_steps=300, steps=450, learning_rate=3e-3),
        **CONTROLS,
    },
    more={"EHR-Safe, ten times as many": ("EHR-Safe", 10)},
)


if __name__ == "__main__":
    ehr_recipe.main(RECIPE)
