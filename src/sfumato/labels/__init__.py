"""LabelDP: private labels of public inputs, randomised once as a phase of a run, and priors for them."""

from sfumato.labels.clusters import clusters, label_counts
from sfumato.labels.fitting import LabelsResult
from sfumato.labels.histogram import NoisyHistogram
from sfumato.labels.learning import Progress
from sfumato.labels.lp_mst import LPMST
from sfumato.labels.phase import label_facts, randomized
from sfumato.labels.priors import smoothed
from sfumato.labels.randomize import RandomizedTable, randomize_table
from sfumato.labels.rr_on_bins import RROnBins
from sfumato.labels.settings import LabelSettings

__all__ = [
    "LPMST",
    "LabelSettings",
    "LabelsResult",
    "NoisyHistogram",
    "Progress",
    "RROnBins",
    "RandomizedTable",
    "clusters",
    "label_counts",
    "label_facts",
    "randomize_table",
    "randomized",
    "smoothed",
]
