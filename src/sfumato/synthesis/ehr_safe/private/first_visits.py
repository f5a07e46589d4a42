"""What of each patient's record a private run looks at: the first visits, up to a public number and a public time.

Each patient is cut by the patient's own record alone, so nobody's coming or going changes what is kept of another one.
"""

from dataclasses import replace

import numpy as np

from sfumato.data.ehr.dataset import EHRDataset


def first_visits(data: EHRDataset, *, max_visits: int, horizon: float) -> EHRDataset:
    """The records with no more visits than that, and none after the horizon.

    The first visit is kept whenever it was; after the horizon it counts as having been then.

    Args:
        data: the records.
        max_visits: of a patient, >= 1.
        horizon: the latest time of a visit, > 0.
    """
    order = np.arange(len(data.times)) - np.repeat(data.offsets[:-1], data.lengths)
    kept = (order < max_visits) & ((order == 0) | (data.times <= horizon))
    lengths = np.bincount(data.owners[kept], minlength=len(data))
    return replace(
        data,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=np.minimum(data.times[kept], horizon),
        numbers=data.numbers[kept],
        codes=data.codes[kept],
    )
