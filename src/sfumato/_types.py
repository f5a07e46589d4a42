"""Names for the few values that many packages pass on."""

from typing import Literal

Adjacency = Literal["add_remove", "replace", "zero_out"]
"""How two data sets may differ in one unit: present or absent, exchanged, or blanked."""

Unit = Literal["example", "user", "virtual_client", "agent", "identity", "patient", "label"]
"""Whose presence a guarantee hides."""
