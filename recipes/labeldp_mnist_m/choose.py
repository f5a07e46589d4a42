"""Try settings on 1,000 training rows that are held out, and write trials.json, whose best ones run.py takes."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from label_recipe import choose
from run import RECIPE

if __name__ == "__main__":
    torch.set_num_threads(1)
    choose(RECIPE)
