"""Synthesis: records of people that never lived, drawn from a model of those that did."""

from sfumato.synthesis.baselines.copies import Copies
from sfumato.synthesis.baselines.course import BaselineResult
from sfumato.synthesis.baselines.crnngan import CRNNGAN
from sfumato.synthesis.baselines.independent_columns import IndependentColumns
from sfumato.synthesis.baselines.load import load_baseline
from sfumato.synthesis.baselines.rcgan import RCGAN
from sfumato.synthesis.baselines.synthesizer import BaselineSynthesizer
from sfumato.synthesis.baselines.timegan import TimeGAN
from sfumato.synthesis.ehr_safe.course import EHRSafeResult
from sfumato.synthesis.ehr_safe.plan import EHRSafe
from sfumato.synthesis.ehr_safe.synthesizer import Synthesizer

__all__ = [
    "CRNNGAN",
    "RCGAN",
    "BaselineResult",
    "BaselineSynthesizer",
    "Copies",
    "EHRSafe",
    "EHRSafeResult",
    "IndependentColumns",
    "Synthesizer",
    "TimeGAN",
    "load_baseline",
]
