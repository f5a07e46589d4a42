"""`sfumato vote ae` and `sfumato vote knn`: agents answer public queries under noise, and a student learns of them."""

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfumato._check import InputError
from sfumato._files import read_json
from sfumato.algorithms import ALGORITHMS, command_of
from sfumato.cli.console import leads, notify, plain, say, say_json, table, told_bar
from sfumato.cli.measured import say_outcome
from sfumato.cli.options.backbones import check_device
from sfumato.cli.options.classifiers import ClassifierOptions, build_classifier
from sfumato.cli.options.public_features import public_features
from sfumato.cli.options.training import training_options
from sfumato.cli.options.voting import VoteParts, VoteRun, public_shape, read_vote, sources
from sfumato.cli.train import free_folder
from sfumato.data import to_tensor
from sfumato.models import features_of
from sfumato.runs import RunFolder
from sfumato.runs.statement import make_statement
from sfumato.voting import ClearTally, Tally, VotingResult
from sfumato.voting.course import facts_of
from sfumato.voting.fit import VotingPlan
from sfumato.voting.plan import VotingSettings

_OF_TALLIERS = ("talliers", "certificate", "key", "authority", "without_tls")
LINEAR = "linear"


def options_of(name: str) -> Any:
    """The class of all options of a plan's command."""
    return sources(ALGORITHMS[name].load())


def train(name: str, argv: Sequence[str]) -> int:
    """Run the command of a plan of the registry."""
    algorithm = ALGORITHMS[name]
    options, _ = training_options(algorithm.load(), options_of(name), argv, about=algorithm.about)
    command = command_of(name)
    run: VoteRun = options.run
    check_device(run.device)
    if run.threads is not None:
        torch.set_num_threads(max(1, run.threads))
    refuse_undecided(options)
    out = free_folder(command.replace(" ", "-"), run)
    already = run.resume is not None and RunFolder(out).has_ended()
    parts = read_vote(options.data, quiet=run.json)
    plan = _decided(options, parts)
    how, student = _models(options, plan, parts)
    if run.dry_run:
        plan.try_out(parts.agents, parts.pool, how, student=student, test=parts.test, device=run.device)
        return _dry_run(plan, parts, options)
    begins = None if run.json else f"run: {out} (go on after a stop with: sfumato {command} --resume {out})"
    with _tally(run, out) as tally, told_bar(begins, "agents") as progress:
        result = plan.fit(
            parts.agents,
            parts.pool,
            how,
            student=student,
            test=parts.test,
            out=out,
            resume=run.resume is not None,
            tally=tally,
            about=_about(options, parts),
            device=run.device,
            threads=run.threads,
            progress=progress,
        )
    if not result.finished:
        notify(f"stopped while agents voted; go on with: sfumato {command} --resume {out}")
        return 130
    _conclude(result, out, plan, options, already=already)
    return 0


def refuse_undecided(options: Any) -> None:
    """A vote whose privacy nobody has chosen, or two have."""
    epsilon, noise = options.budget.epsilon, options.plan.noise_std
    if epsilon is None and noise is None:
        raise InputError(
            "how private shall the vote be? give --epsilon 3 (the noise is calibrated to it), or --noise-std 25 for "
            "the noise on each count, in votes"
        )
    if epsilon is not None and noise is not None:
        raise InputError("give --epsilon (the noise is calibrated to it) or --noise-std, not both")


def _decided(options: Any, parts: VoteParts) -> VotingPlan:
    plan, epsilon = options.plan, options.budget.epsilon
    plan = plan.with_attributes(parts.agents.num_classes if parts.agents.of_attributes else None)
    if epsilon is None:
        return plan
    return plan.calibrate(epsilon=epsilon, delta=plan.delta, population=plan.population_of(parts.agents))


def _models(options: Any, plan: VotingPlan, parts: VoteParts) -> tuple[Any, nn.Module]:
    """What every agent starts from, or the features; and the student."""
    chosen, quiet = options.model, options.run.json
    shape = public_shape(parts.pool, parts.agents.num_classes)
    seed = chosen.model_seed
    if plan.neighbours is None:
        model = build_classifier(chosen, shape, seed, load=True, quiet=quiet)
        if chosen.student_model is None:
            return model, build_classifier(chosen, shape, seed, load=True, quiet=True)
        student = ClassifierOptions(model=chosen.student_model)
        return model, build_classifier(student, shape, seed, load=True, quiet=quiet)
    how = public_features(chosen.features, chosen.pretrained, chosen.model_seed, flag="--pretrained")
    if options.plan.student_inputs == "inputs":
        named = ClassifierOptions(model="lenet5" if chosen.student_model == LINEAR else chosen.student_model)
        return how, build_classifier(named, shape, seed, load=True, quiet=quiet)
    if chosen.student_model != LINEAR:
        raise InputError(
            f"on features the student is linear, got --student-model {chosen.student_model}; add --student-inputs "
            "inputs for a model of the examples themselves"
        )
    (first,), _ = parts.pool.examples(range(1))
    width = features_of(how, to_tensor(first), device=options.run.device).shape[1]
    return how, _linear(width, parts.agents.num_classes)


def _linear(width: int, classes: int) -> nn.Module:
    """A linear model that begins at zero."""
    made = nn.Linear(width, classes)
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    return made


def _about(options: Any, parts: VoteParts) -> dict[str, Any]:
    """What plan.json says beside the plan: enough to read the data and build the models again."""
    return plain(
        {
            **dataclasses.asdict(options.data),
            **dataclasses.asdict(options.model),
            **{name: getattr(options.run, name) for name in _OF_TALLIERS},
            "threads": options.run.threads,
            "device": options.run.device,
            "epsilon_wanted": options.budget.epsilon,
            "classes": parts.agents.num_classes,
            "outputs": parts.agents.num_classes,
            "input_shapes": parts.pool.input_shapes,
            "vocabulary_sizes": (),
            "version": version("sfumato"),
        }
    )


@contextmanager
def _tally(run: VoteRun, out: Path) -> Iterator[Tally]:
    if not run.talliers:
        yield ClearTally()
        return
    from sfumato.voting.tally.multi_party import MultiPartyTally  # late: it needs mpyc

    if len(run.talliers) == 1 and run.talliers[0].isdigit():
        folder = out.with_name(f"{out.name}-talliers")  # a vote that goes on finds them with their keys
        with MultiPartyTally.local(int(run.talliers[0]), folder=folder) as tally:
            yield tally
        if RunFolder(out).has_ended():
            shutil.rmtree(folder)
        return
    yield MultiPartyTally(
        run.talliers,
        certificate=run.certificate,
        key=run.key,
        authority=run.authority,
        without_tls=run.without_tls,
    )


def _dry_run(plan: VotingSettings, parts: VoteParts, options: Any) -> int:
    facts = facts_of(plan, parts.agents, parts.pool, ClearTally())
    statement = make_statement(plan.event(), facts, noise_source="os" if plan.seed is None else "seeded")
    if options.run.json:
        say_json({"plan": plan.to_json(), "statement": statement.to_json()})
        return 0
    table(["setting", "value"], [[name, str(value)] for name, value in plan.to_json().items() if value is not None])
    say(f"\nat its end the run would state:\n\n{statement.text()}\n\ndry run: nobody voted and nothing was written")
    return 0


def _conclude(result: VotingResult, out: Path, plan: VotingSettings, options: Any, *, already: bool) -> None:
    """What the vote brought."""
    if not leads():
        return
    file = out / "evaluation.json"
    evaluation = read_json(file) if file.exists() else {}
    from sfumato.report import summary, write_report  # late: plots take a while to load

    page = write_report([out])
    if options.run.json:
        say_outcome(out, page, result.statement, evaluation, already=already)
        return
    _tell(result, evaluation)
    _tell_published(result)
    if options.run.owner:
        _tell_owner(result)
    say("\n" + "\n".join(summary(out, page)) + f"\n\nrun: {out}")


def _tell(result: VotingResult, evaluation: dict[str, Any]) -> None:
    answers = evaluation.get("answers", {})
    line = f"answers: {answers.get('answered', 0):,} of {len(result.queries):,} queries"
    known = {name: value for name, value in answers.items() if isinstance(value, float)}
    say(line + "".join(f", {name.replace('_', ' ')} {value:.4f}" for name, value in known.items()))
    models = [name for name in ("untrained", "trained") if name in evaluation]
    if models:
        keys = [name for name, value in evaluation[models[-1]].items() if isinstance(value, float)]
        table(
            ["student", *(key.replace("_", " ") for key in keys)],
            [
                [name, *(f"{evaluation[name][key]:.4f}" if key in evaluation[name] else "" for key in keys)]
                for name in models
            ],
        )


def _tell_published(result: VotingResult) -> None:
    """What the run released of the cost of its answers."""
    if result.published is not None:
        delta = result.statement.delta
        say(
            f"released: at most epsilon {result.published.epsilon(delta):.4f} for the votes as they were cast, with "
            f"confidence {result.published.confidence:g}; a bound at this data set, not differential privacy"
        )


def _tell_owner(result: VotingResult) -> None:
    """For whoever may see the votes."""
    try:
        cost = result.cost().epsilon(result.statement.delta)
    except InputError as error:
        say(f"for the owner: {error}")
        return
    say(
        f"for the owner, not private, never to be published: epsilon {cost.value:.4f} for the votes as they were cast "
        f"(the statement's holds for any votes: {result.statement.epsilon:.4f})"
    )
