"""Code that keeps something of records that it had before, or that couples records in some steps only; sound siblings.

The checks compare later calls with each other. What the first call leaves behind is constant by then, and what begins
at a step that no check looks at is never compared. Each specimen is built anew for each training, so that one process
can hold several: its class, global name, closure or file is a new one each time.

A specimen names the ways of training that it is for (`adversarial.first_call.ways`), and whether it is to be refused.
One that is accepted must keep the bound: one unit moves no released sum by more than the plan accounts for.
"""

from adversarial.first_call import data, loops, models, units
from adversarial.first_call.specimen import FEATURES, SPECIMENS, Code, Specimen, Turn

__all__ = ["FEATURES", "SPECIMENS", "Code", "Specimen", "Turn", "data", "loops", "models", "units"]
