"""Names for the few values that many packages pass on."""

from typing import Literal

Adjacency = Literal["add_remove", "replace", "zero_out"]
"""How two data sets may differ in one unit: present or absent, exchanged, or blanked."""

RecordUnit = Literal["patient", "stay", "admission", "record"]
"""What one health record is of."""

Unit = Literal["example", "user", "virtual_client", "agent", "identity", "label"] | RecordUnit
"""Whose presence a guarantee hides."""
