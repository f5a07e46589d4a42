"""Synthetic health records: how faithful, how useful, and what three attacks find."""

from sfumato.audit.ehr.attack import Attack, Measure
from sfumato.audit.ehr.attribute import attribute_inference
from sfumato.audit.ehr.evaluate import Evaluation, evaluate
from sfumato.audit.ehr.fidelity import Fidelity, fidelity
from sfumato.audit.ehr.flatten import Flat, FlatColumn, flatten
from sfumato.audit.ehr.membership import membership_inference
from sfumato.audit.ehr.reidentification import reidentification
from sfumato.audit.ehr.scale import Placed, Scale
from sfumato.audit.ehr.utility import ModelUtility, Utility, utility

__all__ = [
    "Attack",
    "Evaluation",
    "Fidelity",
    "Flat",
    "FlatColumn",
    "Measure",
    "ModelUtility",
    "Placed",
    "Scale",
    "Utility",
    "attribute_inference",
    "evaluate",
    "fidelity",
    "flatten",
    "membership_inference",
    "reidentification",
    "utility",
]
