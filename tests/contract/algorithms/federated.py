"""Specimens of the federated algorithms."""

from functools import partial

from contract.specimen import PRIVATE, Specimen, ratings_command, user_command, users

_CLIENT = {"client.batch_size": 2, "client.learning_rate": 0.1, "client.momentum": 0.5}
_LOCAL = {**PRIVATE, **_CLIENT, "client.epochs": 1}

SPECIMENS = {
    "fedemb": Specimen(
        records=users,
        fields=_LOCAL,
        cohort=lambda units: {"cohort.size": units // 2, "cohort.users_per_client": 2},
        variants=(
            {},
            {"client.at_once": 3},
            {"client.head.classes": "global"},
            {"client.head.classes": "global", "cohort.users_per_client": 1},
            {"client.head.steps_alone": 1},
        ),
        command=user_command,
    ),
    "fedavg": Specimen(
        records=users,
        fields=_LOCAL,
        cohort=lambda units: {"cohort.size": units},
        variants=(
            {},
            {"client.at_once": 3},
            {"client.loss": "cosface"},
            {
                "cohort.size": 2,
                "cohort.users_per_client": 3,
                "client.at_once": 3,
                "client.epochs": 2,
                "client.learning_rate": 0.5,
            },
        ),
        command=user_command,
    ),
    "fedsgd": Specimen(
        records=users,
        fields=PRIVATE,
        cohort=lambda units: {"cohort.size": units // 2, "cohort.users_per_client": 2},
        command=user_command,
    ),
    "fedrecon": Specimen(
        records=users,
        fields={
            **PRIVATE,
            **_CLIENT,
            "client.loss": "cross_entropy",
            "client.local.parameters": r".*bias",
            "client.at_once": 1,
        },
        cohort=lambda units: {"cohort.size": units},
        variants=(
            {},
            {"client.at_once": 3},
            {"client.local.joint": True},
            {"client.local.support_order": "first", "client.local.steps": 2},
        ),
        command=ratings_command,
    ),
    "centralized": Specimen(
        records=partial(users, each=1),  # its unit is an example
        cohort=lambda units: {"cohort.size": units},
        command=user_command,
        guarantee=False,  # no bound, no noise: sensitivity, noise and what leaves without noise are not asked
    ),
}
