"""Synthetic health records: how faithful, how useful, and what three attacks find."""

from sfumato.audit.ehr.attacks import (
    Attack,
    Measure,
    Placed,
    Scale,
    attribute_inference,
    membership_inference,
    reidentification,
)
from sfumato.audit.ehr.evaluate import Evaluation, evaluate
from sfumato.audit.ehr.fidelity import Fidelity, fidelity
from sfumato.audit.ehr.flat import Flat, FlatColumn, flatten
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
