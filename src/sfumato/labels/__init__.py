"""LabelDP: private labels of public inputs, randomised once as a phase of a run, and priors for them."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato._bar import Progress
    from sfumato.labels.domains import Classes, Grid
    from sfumato.labels.lp_mst import LPMST
    from sfumato.labels.plan import LabelsResult
    from sfumato.labels.priors import Counted, PublicPrior, Uniform, clusters, label_counts, smoothed
    from sfumato.labels.randomize import RandomizedTable, randomize_table
    from sfumato.labels.response import label_facts, randomized
    from sfumato.labels.rr_on_bins import RROnBins
    from sfumato.labels.table import LabelSettings

__all__ = [
    "LPMST",
    "Classes",
    "Counted",
    "Grid",
    "LabelSettings",
    "LabelsResult",
    "Progress",
    "PublicPrior",
    "RROnBins",
    "RandomizedTable",
    "Uniform",
    "clusters",
    "label_counts",
    "label_facts",
    "randomize_table",
    "randomized",
    "smoothed",
]
__getattr__, __dir__ = lazily(__name__)
