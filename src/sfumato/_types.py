"""Names for the few values that many packages pass on."""

from typing import Literal

Adjacency = Literal["add_remove", "replace", "zero_out"]
"""How two data sets may differ in one unit: present or absent, exchanged, or blanked."""

RecordUnit = Literal["patient", "stay", "admission", "record"]
"""What one health record is of."""

Unit = Literal["example", "user", "virtual_client", "agent", "identity", "label"] | RecordUnit
"""Whose presence a guarantee hides."""

Method = Literal["auto", "pld", "rdp", "rdp_usual_orders", "zcdp", "gaussian", "pure"]
"""Accountants by name; auto is the tightest of those that know an event."""

MatrixName = Literal["banded", "blt", "bisr", "square_root", "gaussian"]
"""Matrices of noise that is correlated over rounds."""

CorrelatedName = Literal["tree", "banded", "blt", "bisr"]
"""Kinds of noise that is correlated over rounds."""

OptimizerName = Literal["sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop", "yogi"]
"""Optimizers that plans know by name."""

Level = Literal["agent", "instance"]
"""Whose presence a vote hides: an agent with all of its data, or one example of one agent."""

PLAN_FORMAT = 2
"""Of the plan.json of training runs: 1 had flat fields, 2 has parts."""
