"""Specimens of the algorithms of one holder of the data."""

from contract.specimen import PRIVATE, Specimen, example_command, examples

SPECIMENS = {
    "dpsgd": Specimen(
        records=examples,
        fields={**PRIVATE, "examples.micro_batch": 3, "server.name": "adam", "server.learning_rate": 0.01},
        rounds="steps",
        cohort=lambda units: {"cohort.size": units},
        variants=({}, {"examples.micro_batch": 1}, {"examples.micro_batch": 16}),
        command=example_command,
    ),
    "labeldp_pro": Specimen(
        records=examples,
        fields={**PRIVATE, "examples.micro_batch": 3, "public_batch": 4, "projection_steps": 3},
        rounds="steps",
        cohort=lambda units: {"cohort.size": units},
        variants=({}, {"examples.micro_batch": 16, "averaging": 0.9, "projection": "hull"}),
        command=example_command,
        bare={"public_batch": 0, "averaging": 0.0},
        limited=False,
    ),
}
