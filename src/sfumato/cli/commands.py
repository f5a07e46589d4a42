"""The registry of commands: where each one is, what it does, and what its help shows first.

A command's module is imported when the command is called, so that `sfumato --help` answers at once.
"""

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.algorithms import ALGORITHMS
from sfumato.cli.console import Answer

_PLACES = {"agents": "vote", "labels": "labels", "ehr": "ehr", "silos": "silos"}
"""The modules of plans that do not train in rounds, by their kind of records."""

_FEW = 10
"""Options that the short help shows, at most."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Where a command is and what it does.

    Attributes:
        module: its file in this package.
        function: takes the options and gives the answer.
        options: the class of its options, whose docstring begins with what the command does, or a function that gives
            it, with `first` from that: in the same file, or file.name.
        summary: one line for the overview.
        example: one use, in its help.
        matters: the options that the short help shows, by field name, with blanks between them; empty for the first
            ones.
        first: the name of the algorithm, where one file serves several.
        reader: what reads the options from the words, and prints the help, where more than flags and a settings file
            are read: in the same file, or file.name.
    """

    module: str
    function: str
    options: str
    summary: str
    example: str
    matters: str = ""
    first: str | None = None
    reader: str | None = None

    def run(self, options: Any) -> Answer:
        """Do what the command does."""
        return self.found(self.function)(options)

    def about(self) -> str:
        """What it does, for its help."""
        if self.first is not None:
            return ALGORITHMS[self.first].about
        return " ".join((inspect.getdoc(self.kind()) or "").split("\n\n")[0].split())

    def kind(self) -> Any:
        """The class of its options."""
        found = self.found(self.options)
        return found(self.first) if self.first is not None else found if isinstance(found, type) else found()

    def shown(self, names: Sequence[str]) -> list[str]:
        """Of the options, those of the short help."""
        common = ("config", "json")
        return self.matters.split() or [name for name in names if name not in common][:_FEW]

    def found(self, name: str) -> Any:
        """What has this name in the command's file, or file.name."""
        module, _, name = name.rpartition(".")
        return getattr(importlib.import_module(f"sfumato.cli.{module or self.module}"), name)


COMMANDS = {
    **{
        each.words: Command(
            module=_PLACES.get(each.records, "training"),
            function="train",
            options="options_of" if each.records in _PLACES else "run_options.options_of",
            summary=each.summary,
            example=each.example,
            matters=each.matters,
            first=name,
            reader="train_options" if each.records == "ehr" else "run_options.training_options",
        )
        for name, each in ALGORITHMS.items()
    },
    "check-model": Command(
        module="check_model",
        function="check_model",
        options="CheckOptions",
        summary="how each layer of a model is covered, and what is refused",
        example="sfumato check-model lenet5 --data glyphs",
        matters="data kind shape num_classes vocabulary model_options trainable memory_budget device",
    ),
    "forecast": Command(
        module="forecast",
        function="forecast",
        options="ForecastOptions",
        summary="whether the noise of a planned run leaves anything to learn; no record is read",
        example="sfumato forecast runs/a/plan.json --epsilon 8 --population 5000",
        matters="population epsilon rounds parameters",
    ),
    "embed": Command(
        module="embeddings",
        function="embed",
        options="EmbedOptions",
        summary="a trained model and a data set → a Parquet file of embeddings",
        example="sfumato embed runs/a glyphs.store --out embeddings.parquet",
    ),
    "search": Command(
        module="embeddings",
        function="search",
        options="SearchOptions",
        summary="embeddings and a query → the most similar ones",
        example="sfumato search embeddings.parquet --user U+0481 --neighbours 3",
        matters="query user run neighbours itself column out",
    ),
    "dplc": Command(
        module="clusters",
        function="dplc",
        options="ClusterOptions",
        summary="embeddings of private identities → directions of dense groups of them, under a guarantee",
        example="sfumato dplc private.parquet --candidates public.parquet --epsilon 2 --out runs/groups",
        matters="candidates epsilon radius threshold dimensions groups releases silos out dry_run",
    ),
    "personalise": Command(
        module="personalise",
        function="personalise",
        options="PersonaliseOptions",
        reader="read",
        summary="people's records and a model with parts of their own → predictions for each of them",
        example="sfumato personalise runs/a ml-latest-small --top 10 --out for-each.parquet",
        matters="out top query measure user item value on_unknown device",
    ),
    "labeldp randomize": Command(
        module="labels",
        function="randomize",
        options="RandomizeOptions",
        summary="a table with private labels → the same table with randomised ones, for anybody to train on",
        example="sfumato labeldp randomize clicks.csv --label click --epsilon 1 --domain.names 0 1 --out noisy.csv",
        matters="label epsilon out domain domain.names domain.public domain.method prior shuffle resume",
    ),
    "ehr sample": Command(
        module="ehr",
        function="ehr_sample",
        options="SampleOptions",
        reader="read_sample",
        summary="a model of health records → a folder of new ones, as many as you like",
        example="sfumato ehr sample --model runs/patients --count 1000 --to made",
        matters="model count to format conditions seed threads",
    ),
    "ehr evaluate": Command(
        module="ehr",
        function="ehr_evaluate",
        options="EvaluateOptions",
        summary="synthetic and real health records compared: how faithful, how useful, what attacks find",
        example="sfumato ehr evaluate --real train --holdout held-out --synthetic made --out records.html",
        matters="model synthetic real holdout out schema sensitive most seed",
    ),
    "ads train": Command(
        module="ads",
        function="train",
        options="train_group",
        summary="train a private model of clicks, sales or counts on a log of impressions",
        example="sfumato ads train --data clicks.store --epsilon 8 --cohort 100",
        matters="data schema predict unit impressions epsilon tables cohort out resume",
        reader="train_options",
    ),
    "ads evaluate": Command(
        module="ads",
        function="evaluate",
        options="EvaluateOptions",
        summary="the loss, AUC and calibration of a model of clicks or counts, next to a constant",
        example="sfumato ads evaluate runs/clicks",
    ),
    "ads sweep": Command(
        module="ads_sweep",
        function="sweep",
        options="sweep_group",
        summary="settings chosen for each epsilon, and the loss against epsilon",
        example=(
            "sfumato ads sweep --data clicks.store --epsilons 1 10 --clips 10 --rates 0.2 0.5 --cohort 100 --epochs 1"
        ),
        matters="data schema epsilons batches clips rates choose impressions out resume",
        reader="sweep_options",
    ),
    "ads generate": Command(
        module="ads",
        function="generate",
        options="GenerateOptions",
        summary="write a log of impressions whose truth is known",
        example="sfumato ads generate clicks.store --rows 3000 --vocabularies 1000 50 --users 300",
    ),
    "report": Command(
        module="runs",
        function="report",
        options="ReportOptions",
        summary="one self-contained HTML page about one run or several",
        example="sfumato report runs/a --out a.html",
    ),
    "close": Command(
        module="runs",
        function="close",
        options="CloseOptions",
        summary="end a run that was stopped, and delete its key",
        example="sfumato close runs/a",
    ),
    "tally": Command(
        module="vote",
        function="tally",
        options="TallyOptions",
        summary="one of several parties that count votes together and see none",
        example="sfumato tally --index 1 --talliers 127.0.0.1:7001 127.0.0.1:7002 127.0.0.1:7003 --out tallier-1",
        matters="index talliers out listen certificate key authority wait once",
    ),
    "account": Command(
        module="account",
        function="account",
        options="AccountOptions",
        summary="what a run costs: epsilon from noise, sampling and steps",
        example="sfumato account --noise-multiplier 1 --sampling-rate 0.01 --steps 10000 --delta 1e-5",
        matters="noise_multiplier event examples batch_size epochs sampling_rate steps delta adjacency plot",
    ),
    "account tree": Command(
        module="account",
        function="account_tree",
        options="TreeOptions",
        summary="what a run with tree noise (DP-FTRL) costs",
        example="sfumato account tree --noise-multiplier 7 --steps 2000 --max-participations 6 --min-separation 313",
    ),
    "account matrix": Command(
        module="account",
        function="account_matrix",
        options="MatrixOptions",
        summary="what a run with banded, BLT or other correlated noise costs",
        example="sfumato account matrix --noise-multiplier 7 --steps 2000 --max-participations 6 --min-separation 313",
    ),
    "compare": Command(
        module="compare",
        function="compare",
        options="CompareOptions",
        summary="what runs cost under one convention: same delta, same neighbours",
        example="sfumato compare small-batches.json large-batches.json --delta 1e-6",
    ),
    "calibrate": Command(
        module="account",
        function="calibrate",
        options="CalibrateOptions",
        summary="the noise, the steps or the sampling rate that meet a budget",
        example="sfumato calibrate --epsilon 2 --delta 1e-5 --sampling-rate 0.01 --steps 10000",
        matters="epsilon mu advantage delta noise_multiplier examples batch_size epochs sampling_rate steps",
    ),
    "extrapolate": Command(
        module="account",
        function="extrapolate",
        options="ExtrapolateOptions",
        summary="what more computation and more people buy in privacy",
        example="sfumato extrapolate --populations 3e6 --multipliers 1 2 4 --figure extrapolate.png",
    ),
    "ledger show": Command(
        module="ledger",
        function="ledger_show",
        options="ShowOptions",
        summary="what a ledger holds, what it cost, and what its budget leaves",
        example="sfumato ledger show runs/a/ledger.jsonl",
    ),
    "ledger verify": Command(
        module="ledger",
        function="ledger_verify",
        options="VerifyOptions",
        summary="whether a ledger is whole: nothing changed, removed or moved",
        example="sfumato ledger verify runs/a",
    ),
    "ledger merge": Command(
        module="ledger",
        function="ledger_merge",
        options="MergeOptions",
        summary="ledgers of the same records as one; each release counts once",
        example="sfumato ledger merge runs/a other.jsonl --out all.jsonl --unrelated",
    ),
    "data pack": Command(
        module="data",
        function="data_pack",
        options="PackOptions",
        summary="decode a folder of pictures once into a memory-mapped store",
        example="sfumato data pack photos photos.store",
        matters="text vocabulary user input label folder size channels labels on_error",
    ),
    "data schema": Command(
        module="data",
        function="data_schema",
        options="SchemaOptions",
        summary="draft the schema of a table or of health records, for a person to complete",
        example="sfumato data schema bank.csv --label y --out bank.yaml",
        matters="out label target drop numeric ranges epsilon id time outcome",
    ),
    "data stores": Command(
        module="data",
        function="data_stores",
        options="StoreOptions",
        summary="list or remove the private copies of data that did not fit into memory",
        example="sfumato data stores",
    ),
    "data glyphs": Command(
        module="data",
        function="data_glyphs",
        options="GlyphOptions",
        summary="write the embedded default data as a store",
        example="sfumato data glyphs glyphs.store --identities 40 --images 6",
    ),
}
"""By name; a name of two words belongs to a group."""
