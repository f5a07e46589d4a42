"""312 patients with a liver disease: EHR-Safe, what becomes of it without its parts, and what else there is.

See README.md.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import ehr_recipe
from cells import SHARED  # pyright: ignore[reportAttributeAccessIssue]
from ehr_baselines import CRNNGAN, RCGAN, TimeGAN
from ehr_recipe import CONTROLS, Recipe

from sfumato import data
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis import EHRSafe

HELD_OUT = 0.4

OURS = EHRSafe(epochs=60, gan_steps=1000, calibrated_on=500)


def parts() -> tuple[EHRDataset, EHRDataset]:
    """Patients to learn from, and 40 % held out. The outcome is death; a transplant counts as alive."""
    table = pd.read_csv(SHARED / "pbcseq.csv")
    table["died"] = table.pop("status").map({0: "no", 1: "no", 2: "yes"})
    records = data.ehr_from_tables(table, id="id", time="day", outcome="died", drop=["rownames", "futime"])
    return records.split(HELD_OUT, seed=0)


RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    dataset="Mayo PBC, sequential",
    parts=parts,
    methods={
        "EHR-Safe": OURS,
        "EHR-Safe, latent noise of .8": replace(OURS, latent_noise=0.8),
        "EHR-Safe, min-max normalisation": replace(OURS, stochastic_normalisation=False),
        "EHR-Safe, one-hot categories": replace(OURS, category_encoder=False),
        "EHR-Safe, no masks": replace(OURS, masks=False),
        "TimeGAN": TimeGAN(embedding_steps=300, supervised_steps=100, steps=150, learning_rate=3e-3),
        "RC-GAN": RCGAN(steps=1000, learning_rate=3e-3),
        "C-RNN-GAN": CRNNGAN(pretraining_steps=20, steps=500, learning_rate=3e-3),
        **CONTROLS,
    },
    more={
        "EHR-Safe, ten times as many": ("EHR-Safe", 10),
        "EHR-Safe, latent noise of .8, ten times as many": ("EHR-Safe, latent noise of .8", 10),
    },
)


if __name__ == "__main__":
    ehr_recipe.main(RECIPE)
