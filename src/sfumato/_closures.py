"""What a Python function carries with it besides its code.

>>> def scaled(by):
...     return lambda x, offset=1: by * x + offset
>>> held_by(scaled(3))
[3, 1]
"""

from types import CellType, FunctionType
from typing import Any


def held_by(function: FunctionType) -> list[Any]:
    """The values in a function's closure, then those of its defaults; globals are not among them."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _filled(cell: CellType) -> bool:
    """False for a name of the enclosing function that has no value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
