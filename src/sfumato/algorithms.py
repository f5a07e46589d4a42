"""The registry: what a system has to say to have a command, a page and a place in the tests.

Nothing of an algorithm is imported before it is asked for, so that the overview of the commands answers at once.

>>> ALGORITHMS["dpsgd"].title, ALGORITHMS["dpsgd"].load().__name__
('SGD', 'DPSGD')
"""

import importlib
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """One system.

    Attributes:
        package, plan: where the plan's class is: `from {package} import {plan}`.
        records: what it trains on in rounds: data sets by "users", or of "examples"; who votes: "agents"; or what is
            randomised before anything is trained: "labels"; or health records that new ones are made like: "ehr". Says
            which reader and models a command has.
        title: its name in headings; a guarantee puts "DP-" in front, unless it is in the name.
        summary: one line for the overview of commands.
        about: the first paragraph of the command's help.
        example: one use of the command, in its help.
        matters: the options that the short help shows, by field name; --help-all shows the others, too.
        command: the words of the command, where they are not the plan's name.
        reader: of health records: what reads that which the plan has learned, in the same package. It takes the folder
            of a run or its model's file, and gives something whose `sample` draws records block by block and whose
            `schema` lists their columns.
    """

    package: str
    plan: str
    records: Literal["users", "examples", "agents", "labels", "ehr"]
    title: str
    summary: str
    about: str
    example: str
    matters: tuple[str, ...]
    command: str | None = None
    reader: str | None = None

    def load(self) -> Any:
        """The plan's class."""
        return self._found(self.plan)

    def read(self, path: Path) -> Any:
        """What the plan has learned in a run that has ended."""
        assert self.reader is not None
        return self._found(self.reader)(path)

    def _found(self, name: str) -> Any:
        return attrgetter(name)(importlib.import_module(self.package))


_FEDERATED = (
    "data",
    "model",
    "epsilon",
    "noise",
    "rounds",
    "cohort",
    "out",
    "resume",
    "dry_run",
)

_LABELS = ("data", "model", "epsilon", "epochs", "batch_size", "learning_rate", "out", "resume", "dry_run")

_VOTE = ("agents", "pool", "epsilon", "queries", "talliers", "out", "resume", "dry_run")

_EHR = ("data", "events", "id", "time", "holdout_share", "out", "resume", "dry_run")

ALGORITHMS: dict[str, Algorithm] = {
    "fedemb": Algorithm(
        package="sfumato.federated",
        plan="FedEmb",
        records="users",
        title="FedEmb",
        summary="train private embeddings; each person's data stays with a virtual client",
        about="Train private embeddings (DP-FedEmb): each round, users are put into virtual clients that train the "
        "backbone with a head of their own; only the backbone's clipped, noisy mean update leaves.",
        example="sfumato fedemb --data glyphs --epsilon 8 --dry-run",
        matters=(*_FEDERATED, "cohort.users_per_client"),
    ),
    "fedavg": Algorithm(
        package="sfumato.federated",
        plan="FedAvg",
        records="users",
        title="FedAvg",
        summary="federated averaging with a shared head, private or not",
        about="Federated averaging (DP-FedAvg with noise): backbone and head are both shared, clipped and noised.",
        example="sfumato fedavg --data glyphs --epsilon 8 --cohort 64 --dry-run",
        matters=(*_FEDERATED, "client.epochs"),
    ),
    "fedsgd": Algorithm(
        package="sfumato.federated",
        plan="FedSGD",
        records="users",
        title="FedSGD",
        summary="federated SGD with a shared head, private or not",
        about="Federated SGD (DP-FedSGD with noise): each client sends one clipped gradient of backbone and head.",
        example="sfumato fedsgd --data glyphs --noise 2 --rounds 50 --dry-run",
        matters=(*_FEDERATED, "server.learning_rate"),
    ),
    "fedrecon": Algorithm(
        package="sfumato.federated",
        plan="FedRecon",
        records="users",
        title="FedRecon",
        summary="train models of which a part never leaves: ratings, texts, classes of one's own",
        about="Federated Reconstruction: each user rebuilds a part of the model that is their own, and never sends it; "
        "only the shared part's clipped, noisy mean update leaves. People who never took part are served, too.",
        example="sfumato fedrecon --data ml-latest-small --items films.txt --model matrix_factorization "
        "--epsilon 8 --dry-run",
        matters=(*_FEDERATED, "client.local.parameters"),
    ),
    "centralized": Algorithm(
        package="sfumato.federated",
        plan="Centralized",
        records="users",
        title="Centralized training",
        summary="the baseline without any guarantee: SGD on the pooled examples",
        about="The baseline without any guarantee: SGD on the pooled examples.",
        example="sfumato centralized --data glyphs --rounds 1000 --dry-run",
        matters=(
            "data",
            "model",
            "rounds",
            "cohort",
            "server.learning_rate",
            "test",
            "seed",
            "out",
            "resume",
            "dry_run",
        ),
    ),
    "dpsgd": Algorithm(
        package="sfumato.central",
        plan="DPSGD",
        records="examples",
        title="SGD",
        summary="train a model that hides every single example (DP-SGD)",
        about="Train a model of classes, numbers or counts so that no single example can be inferred from the result "
        "(DP-SGD): each step draws a random batch, clips every example's gradient, and adds noise to the sum.",
        example="sfumato dpsgd --data glyphs --epsilon 3 --delta 1e-5 --epochs 5 --dry-run",
        matters=(
            "data",
            "model",
            "epsilon",
            "noise",
            "epochs",
            "cohort",
            "server.learning_rate",
            "out",
            "resume",
            "dry_run",
        ),
    ),
    "labeldp_pro": Algorithm(
        package="sfumato.central",
        plan="LabelDPPro",
        records="examples",
        title="LabelDP-Pro",
        summary="train a model where labels alone are private, below epsilon 1 (LabelDP-Pro)",
        about="Train a classifier where inputs are public and labels are not (LabelDP-Pro): each step adds noise to a "
        "sum of clipped gradients, and takes the nearest mean gradient that any labels could have given.",
        example="sfumato labeldp pro --data glyphs --epsilon 0.5 --delta 1e-5 --epochs 5 --dry-run",
        matters=(
            "data",
            "model",
            "epsilon",
            "epochs",
            "cohort",
            "server.learning_rate",
            "public_batch",
            "out",
            "resume",
            "dry_run",
        ),
        command="labeldp pro",
    ),
    "ae_dpfl": Algorithm(
        package="sfumato.voting",
        plan="AEDPFL",
        records="agents",
        title="AE-DPFL",
        summary="agents that each train a model label public examples by a noisy vote; a student learns from it",
        about="Label public examples by the votes of agents that each train a model of their own (AE-DPFL), and train "
        "a student on the noisy answers. The agents' models and votes are never released.",
        example="sfumato vote ae --agents agents.npz --pool pool.npz --epsilon 3 --delta 1e-3 --dry-run",
        matters=(*_VOTE, "model", "adaptation_weight"),
        command="vote ae",
    ),
    "knn_dpfl": Algorithm(
        package="sfumato.voting",
        plan="KNNDPFL",
        records="agents",
        title="kNN-DPFL",
        summary="agents label public examples by their nearest records under noise; a student learns from it",
        about="Label public examples by the votes of agents' nearest records in a public feature space (kNN-DPFL), and "
        "train a student on the noisy answers.",
        example="sfumato vote knn --agents agents.npz --pool pool.npz --features hog --epsilon 1 --dry-run",
        matters=(*_VOTE, "features", "neighbours"),
        command="vote knn",
    ),
    "lp_mst": Algorithm(
        package="sfumato.labels",
        plan="LPMST",
        records="labels",
        title="LP-MST",
        summary="train a model of public inputs whose labels are private (label DP)",
        about="Randomise private labels of public inputs, each once, and train on the reports (LP-MST): the labels of "
        "a first part of the rows by what is known before, those of the next part by what the model says of them.",
        example="sfumato labeldp train --data glyphs --epsilon 2 --shuffle --dry-run",
        matters=(*_LABELS, "stages"),
        command="labeldp train",
    ),
    "rr_on_bins": Algorithm(
        package="sfumato.labels",
        plan="RROnBins",
        records="labels",
        title="RR on bins",
        summary="train a regression on public inputs whose numbers are private (label DP)",
        about="Randomise private numbers of public inputs, each once, and train on the reports: numbers of a few bins "
        "that are best for a noisy histogram of all (RR on bins), numbers with Laplace noise, or one of all values.",
        example="sfumato labeldp regress --data ml-latest-small --model neural --low 0.5 --high 5 --values 10 "
        "--epsilon 2 --shuffle",
        matters=("data", "model", "epsilon", "low", "high", "values", "method", "out", "resume", "dry_run"),
        command="labeldp regress",
    ),
    "ehr_safe": Algorithm(
        package="sfumato.synthesis",
        plan="EHRSafe",
        records="ehr",
        title="EHR-Safe",
        summary="learn from health records, to make new ones like them",
        about="Learn from health records, to make new ones like them: visits at irregular times, what is missing, and "
        "what does not change about a patient. Some patients are held out to measure by. Synthetic is not private: "
        "without noise there is no guarantee, and the statement says so.",
        example="sfumato ehr fit --data patients --dry-run",
        matters=(*_EHR, "epsilon", "horizon"),
        command="ehr fit",
        reader="Synthesizer.load",
    ),
}
"""By the name of the plan, which is also the command's unless it has one of its own."""

TRAINED = {name: each for name, each in ALGORITHMS.items() if each.records in ("users", "examples")}
"""Those that train in rounds on the records themselves."""

SYNTHETIC = {name: each for name, each in ALGORITHMS.items() if each.records == "ehr"}
"""Those that learn from health records, to make new ones, in stages of their own: what is asked of sums in rounds
does not apply to them."""


def command_of(plan: str) -> str:
    """The words of a plan's command; the name itself where no plan is called so."""
    algorithm = ALGORITHMS.get(plan)
    return plan if algorithm is None or algorithm.command is None else algorithm.command
