"""Categories to learn embeddings from that nobody had: every one as likely as any other.

An embedding of categories has to tell them apart and to give them back, and needs no record for that. So it costs
nothing.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from sfumato.data.ehr.schema import Column, Schema

_ROWS = 2048


@dataclass(frozen=True, eq=False)
class MadeUpCodes:
    """Rows of codes.

    Attributes:
        static_codes: int64 [rows, categorical static columns], -1 where missing.
        codes: int64 [rows, categorical temporal columns].
    """

    static_codes: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, schema: Schema, seed: int) -> Self:
        """Some rows, by their seed; a missing value is as likely as one category."""
        random = np.random.default_rng(seed)

        def rows(columns: tuple[Column, ...]) -> np.ndarray:
            drawn = [random.integers(-1, len(column.categories), _ROWS) for column in columns]
            return np.column_stack(drawn) if drawn else np.empty((_ROWS, 0), np.int64)

        return cls(rows(schema.static_categorical), rows(schema.temporal_categorical))
