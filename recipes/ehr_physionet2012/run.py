"""4,000 stays in intensive care: EHR-Safe next to three recurrent GANs and two controls. See README.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import ehr_recipe
from cells import SHARED  # pyright: ignore[reportAttributeAccessIssue]
from ehr_baselines import CRNNGAN, RCGAN, TimeGAN
from ehr_recipe import CONTROLS, Recipe

from sfumato import data
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis import EHRSafe

HELD_OUT = 0.25


def parts() -> tuple[EHRDataset, EHRDataset]:
    """Stays to learn from, and a quarter held out."""
    stays = data.physionet2012(SHARED / "physionet2012_set_a.parquet", SHARED / "physionet2012_outcomes_a.txt")
    return stays.split(HELD_OUT, seed=0)


RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    dataset="PhysioNet 2012, set A",
    parts=parts,
    methods={
        "EHR-Safe": EHRSafe(),
        "TimeGAN": TimeGAN(embedding_steps=400, supervised_steps=200, steps=100, learning_rate=3e-3),
        "RC-GAN": RCGAN(steps=1_000),
        "C-RNN-GAN": CRNNGAN(pretraining_steps=300, steps=450, learning_rate=3e-3),
        **CONTROLS,
    },
)


if __name__ == "__main__":
    ehr_recipe.main(RECIPE)
