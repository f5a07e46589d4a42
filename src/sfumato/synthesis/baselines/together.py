"""Records of several data sets in one, under new names."""

from collections.abc import Sequence

import numpy as np

from sfumato.data.ehr.dataset import EHRDataset


def joined(parts: Sequence[EHRDataset], first: int = 0) -> EHRDataset:
    """All patients of data sets of one schema, one after the other, as synthetic-000001 and so on.

    Args:
        parts: at least one; the same patient may be in several.
        first: how many names are taken already.
    """

    def rows(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    lengths = rows("lengths")
    return EHRDataset(
        schema=parts[0].schema,
        ids=tuple(f"synthetic-{first + place + 1:06}" for place in range(len(lengths))),
        static_numbers=rows("static_numbers"),
        static_codes=rows("static_codes"),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=rows("times"),
        numbers=rows("numbers"),
        codes=rows("codes"),
    )
