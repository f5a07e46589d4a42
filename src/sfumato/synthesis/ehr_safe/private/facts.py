"""What the statement of a private run of EHR-Safe tells beside the ledger."""

from sfumato.data.ehr.arrange import assumption
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.runs import Facts
from sfumato.synthesis.ehr_safe.private.spending import Spending
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings


def _whose(schema: Schema) -> str:
    """What one id is of, and whom that leaves out."""
    if schema.unit == "patient":
        return "A patient is one id of the records; whoever has several ids is covered for each of them alone."
    return (
        f"The unit is one {schema.unit} ({schema.id}): a patient with several is covered for each of them alone, and "
        f"what all {schema.unit}s of one patient have in common is covered less."
    )


def private_facts(settings: EHRSafeSettings, spending: Spending, data: EHRDataset, *, finished: bool = True) -> Facts:
    """The facts of a run.

    Args:
        settings: of the plan.
        spending: what was planned to be released.
        data: the records.
        finished: all that was planned was released.
    """
    first, gan, unit = spending.sequences, spending.gan, data.schema.unit
    assumptions = [
        _whose(data.schema),
        f"The number of {unit}s ({len(data):,}), the settings of the plan and the schema with its categories and "
        "ranges are taken to be public. What of them was decided by looking at the records is in no epsilon.",
        assumption(data.schema),
        *data.assumptions,
        f"Of each {unit} the first {settings.max_visits} visits were learned from, until {settings.horizon:g} "
        f"{data.schema.time_unit}; what comes later was not looked at.",
        "Random numbers within a record (where a number lies in its interval, what is added to latent vectors) are not "
        "released.",
    ]
    if not finished:
        assumptions.append(
            "The run was stopped before its end, and that was decided without looking at anything private."
        )
    return Facts(
        unit=unit,
        adjacency="add_remove",
        population=len(data),
        delta=spending.delta,
        sampling=(
            f"everybody for the tables; then {first.sampler.describe()}, for the autoencoder and "
            f"{gan.sampler.describe()}, for the critic"
        ),
        mechanism=(
            f"EHR-Safe: one Gaussian sum of counts cut to norm {spending.tables.clip_norm:.6g}, noise multiplier "
            f"{spending.tables.noise_multiplier:.6g}; up to {first.rounds} Gaussian sums of the autoencoder's "
            f"gradients {first.bound.describe()}, noise multiplier {first.mechanism.noise_multiplier:.6g}; up to "
            f"{gan.rounds} of the critic's {gan.bound.describe()}, noise multiplier "
            f"{gan.mechanism.noise_multiplier:.6g}"
        ),
        covered=(
            "The synthesizer, all records that it generates, the tables, the autoencoder and the critic after every "
            "round, the ledger and the plan are covered. Metrics, evaluations on private data and checkpoints are not."
        ),
        assumptions=tuple(assumptions),
        disclosure={
            "contribution": f"Each {unit}'s counts are cut to a norm once, and each gradient in every round that draws "
            f"the {unit}; one that is not finite counts as zero.",
            "sampling_as_run": "Yes: the samplers that ran are the objects that the cost was derived from.",
        },
    )
