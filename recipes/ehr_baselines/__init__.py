"""Recurrent GANs of three papers on health records, and a control, to compare EHR-Safe with.

Import it with `recipes/` on the path. There is no noise and no guarantee.
"""

from ehr_baselines.copies import Copies, joined
from ehr_baselines.crnngan import CRNNGAN
from ehr_baselines.load import load_baseline
from ehr_baselines.plan import BaselinePlan, BaselineResult, BaselineSynthesizer
from ehr_baselines.rcgan import RCGAN
from ehr_baselines.timegan import TimeGAN

__all__ = [
    "CRNNGAN",
    "RCGAN",
    "BaselinePlan",
    "BaselineResult",
    "BaselineSynthesizer",
    "Copies",
    "TimeGAN",
    "joined",
    "load_baseline",
]
