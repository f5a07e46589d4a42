"""What a table's values were taken for where they are not what the schema declares, counted by column.

>>> told_repairs(Repairs({(CLIPPED, "age"): 2, (FILLED, "age"): 0}), 1000)
('clipped to the declared bounds: age 2 of 1,000 rows (these counts are not private)',)
"""

from collections import Counter

Repairs = Counter[tuple[str, str]]
"""How often values were taken for others: by what was done, and the column. It depends on the records."""

CLIPPED, FILLED, UNDECLARED = "clipped to the declared bounds", "missing and filled", "none of the declared values"


def told_repairs(repairs: Repairs, rows: int) -> tuple[str, ...]:
    """A line for each kind of repair that was made."""
    lines = []
    for what in (CLIPPED, FILLED, UNDECLARED):
        found = [f"{name} {count:,}" for (kind, name), count in repairs.items() if kind == what and count]
        if found:
            lines.append(f"{what}: {', '.join(found)} of {rows:,} rows (these counts are not private)")
    return tuple(lines)
