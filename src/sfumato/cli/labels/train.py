"""`sfumato labeldp train`: public inputs and private labels → a model of the labels' noisy reports."""

import dataclasses
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from sfumato.accounting import Statement
from sfumato.algorithms import ALGORITHMS, command_of
from sfumato.central import Classification, Counts, Regression
from sfumato.cli.console import notify, plain, say, say_json, table, told_bar
from sfumato.cli.options.backbones import check_device
from sfumato.cli.options.classifiers import about_classifier, build_classifier
from sfumato.cli.options.examples import read_example_parts
from sfumato.cli.options.labels import LabelRun, features_for, sources
from sfumato.cli.options.threads import use_threads
from sfumato.cli.options.training import training_options
from sfumato.cli.train import conclude, free_folder
from sfumato.data import ExampleDataset
from sfumato.data.domain import refuse_found
from sfumato.runs import RunFolder


def options_of(name: str) -> Any:
    """The class of all options of a plan's command."""
    return sources(ALGORITHMS[name].load())


def train(name: str, argv: Sequence[str]) -> int:
    """Run the command of a plan of the registry."""
    algorithm, command = ALGORITHMS[name], command_of(name)
    options, _ = training_options(algorithm.load(), options_of(name), argv, about=algorithm.about)
    run: LabelRun = options.run
    check_device(run.device)
    use_threads(run.threads)
    out = free_folder(command.replace(" ", "-"), run)
    already = run.resume is not None and RunFolder(out).has_ended()  # refuses one that was closed
    plan = options.plan
    parts = read_example_parts(options.data, classes=plan.of_classes, labels_alone=True, quiet=run.json)
    if not already:
        refuse_found(parts.train.found)
    model = build_classifier(
        options.model, parts.train, options.model.model_seed, load=True, quiet=run.json, reading=options.data
    )
    given = {"features": features_for(options.model, parts), "test": parts.test, "device": run.device}
    if run.dry_run:
        return _dry_run(plan, plan.try_out(model, parts.train, **given), as_json=run.json)
    ended = "the run is finished: nothing is drawn, trained or measured again"
    how = ended if already else f"go on after a stop with: sfumato {command} --resume {out}"
    with told_bar(None if run.json else f"run: {out} ({how})", "steps") as progress:
        try:
            result = plan.fit(
                model,
                parts.train,
                out=out,
                resume=run.resume is not None,
                about=_about(options, parts.train),
                progress=progress,
                **given,
            )
        except KeyboardInterrupt:
            if not (out / "plan.json").exists():
                raise
            notify(f"stopped; the reports that were drawn are kept; go on with: sfumato {command} --resume {out}")
            return 130
    conclude(result.statement, out, _task(plan), as_json=run.json, already=already)
    return 0


def _task(plan: Any) -> Classification | Regression | Counts:
    """What tells how good the model is."""
    if plan.of_classes:
        return Classification()
    return Counts() if plan.loss == "poisson" else Regression()


def _about(options: Any, data: ExampleDataset) -> dict[str, Any]:
    """What plan.json says beside the plan: enough to read the data and build the model again."""
    told = {
        **dataclasses.asdict(options.data),
        **dataclasses.asdict(options.model),
        "threads": options.run.threads,
        "device": options.run.device,
        **about_classifier(data),
        "version": version("sfumato"),
    }
    if told.get("store") is not None:  # where the records are found again, already as numbers
        told["data"], told["store"] = told["store"], None
    return plain(told)


def _dry_run(plan: Any, statement: Statement, *, as_json: bool) -> int:
    if as_json:
        say_json({"plan": plan.to_json(), "statement": statement.to_json()})
        return 0
    table(["setting", "value"], [[name, str(value)] for name, value in plan.to_json().items() if value is not None])
    say(
        f"\nat its end the run would state:\n\n{statement.text()}\n\ndry run: model and data were tried out; no label "
        "was drawn, and nothing was trained or written"
    )
    return 0
