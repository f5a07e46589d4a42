"""`sfumato privacyface`: several organisations' pictures → one embedding model, and what it cost an identity."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sfumato import runs
from sfumato._check import InputError
from sfumato._check import whole as at_least
from sfumato.algorithms import ALGORITHMS
from sfumato.cli.clusters import occupancy
from sfumato.cli.console import STOPPED, Answer, Table, leads, notify, print_line, staged_bar
from sfumato.cli.models import ModelOptions, build, check_device, embedding_dim_of
from sfumato.cli.results import dry_run, evaluation_of, measurements, outcome, without_curves
from sfumato.cli.run_options import (
    BudgetOptions,
    FolderOptions,
    about_run,
    free_folder,
    grouped,
    start_line,
    use_threads,
)
from sfumato.cli.sources import ReadingOptions, refuse_share

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import UserDataset
    from sfumato.federated import PrivacyFace

_GROUP = "group"


@dataclass(frozen=True, kw_only=True)
class SiloData(ReadingOptions):
    """The records of each silo, and the public people.

    Attributes:
        data: the pictures of each silo, FOLDER/<identity>/<picture>, a packed store, or a table with --user; several
            are a silo each. One is divided by --silo-of or --deal.
        silo_of: for one data set: the column of its table that names each row's silo. Or another table (.csv, .parquet)
            with columns user and silo; identities that are not in it are left out. Or the word group: each group of
            classes (alphabet) is a silo.
        deal: for one data set: deal the identities into so many silos, by a hash of their names.
        public: pictures of people who are not covered. Candidates for clusters are made of them.
        public_share: for one data set: take this share of the identities as public people, by a hash of their names.
            You declare that they are.
        test: pictures of other people to measure the model on.
        test_share: for one data set: keep this share of the identities for the test.
        drop: a table (.csv) with a row a person and columns of the names that the person has in different sources. Who
            is in two silos stays in the first of them; who is in a silo is not public.
        size: bring pictures to this side, or to this height and width.
        channels: convert pictures to grey (1) or RGB (3).
        split_seed: public; chooses who goes where.
    """

    data: tuple[str, ...] = ()
    silo_of: str | None = None
    deal: int | None = None
    public: str | None = None
    public_share: float = 0.0
    test: str | None = None
    test_share: float = 0.0
    drop: Path | None = None
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None
    split_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class SiloRun(FolderOptions):
    """The run.

    Attributes:
        dry_run: read the records, try out the model, print the plan, whether clusters can be released, and the
            statement; train nothing.
        device: where to train: cpu, cuda, or cuda:1.
        far: false accept rates to report recall at.
    """

    device: str = "cpu"
    far: tuple[float, ...] = (1e-3,)


@dataclass(frozen=True, kw_only=True)
class SiloBudget(BudgetOptions):
    """The budget; without it, the backbone has no noise, and the clusters alone a guarantee.

    Attributes:
        epsilon: the budget of the whole run for one identity, clusters (--sharing.epsilon) and backbone together; the
            noise on the backbone is calibrated to it.
    """


@functools.cache
def options_of(name: str) -> Any:
    """The class of all options of a plan's command."""
    return grouped(
        run=(SiloRun, "Where the run goes."),
        data=(SiloData, "Who holds which pictures."),
        model=(ModelOptions, "The backbone."),
        budget=(SiloBudget, "How private the backbone is: --epsilon, or a noise multiplier (--noise) below."),
        plan=(ALGORITHMS[name].load(), "What silos train, and what they share."),
    )


@dataclass(frozen=True)
class SiloParts:
    """What was read.

    Attributes:
        silos: by name.
        public, test: None for none.
        dropped: identities that were left out by --drop.
        unassigned: identities that --silo-of puts into no silo.
    """

    silos: dict[str, UserDataset]
    public: UserDataset | None
    test: UserDataset | None
    dropped: int
    unassigned: int


def train(options: Any) -> Answer:
    """Run the command."""
    from sfumato.federated import Verification
    from sfumato.federated.silos import Training, open_silos, refuse_trained_on

    run: SiloRun = options.run
    check_device(run.device)
    use_threads(run.threads)
    if options.budget.epsilon is not None and options.plan.covered:
        raise InputError("give --epsilon (the noise is calibrated to it) or a noise multiplier (--noise), not both")
    out = free_folder("privacyface", run)
    already = run.resume is not None and runs.RunFolder(out).has_ended()
    parts = read_silos(options.data)
    silos = open_silos(options.plan, parts.silos, parts.public)
    refuse_trained_on(parts.test, silos, of="test")
    sizes = [len(users) for users in silos.values()]
    plan: PrivacyFace = options.plan
    if options.budget.epsilon is not None:
        plan = plan.calibrate(epsilon=options.budget.epsilon, sizes=sizes, delta=plan.delta)
    shape = next(iter(silos.values())).input_shape
    load = run.resume is None
    model = build(options.model, shape, plan.seed, load=load, quiet=run.json, trainable=plan.trainable)
    if not run.json:
        print_line("\n".join(_described(parts, silos)))
    found = _forecast(plan, model, sizes) if run.resume is None else {}
    if run.dry_run:
        return _dry_run(plan, Training(plan, model, silos, parts.public, device=run.device), sizes, found)
    line = None if run.json else start_line(out, plan.name, ended="trained" if already else None)
    if line is not None and found:
        line += f"\nforecast: {found['words']}"
    task = Verification(fars=run.far)
    with staged_bar(line, "rounds") as progress:
        result = plan.fit(
            model,
            silos,
            public=parts.public,
            test=parts.test,
            out=out,
            resume=run.resume is not None,
            about=_about(options, shape),
            device=run.device,
            task=task,
            progress=progress,
        )
    if not result.finished:
        notify(
            f"stopped after round {len(result.history)} of {plan.rounds}; go on with: sfumato privacyface --resume "
            f"{out}"
        )
        return STOPPED
    if not leads():
        return Answer()
    evaluation = evaluation_of(out)
    return outcome(
        out,
        result.statement,
        already=already,
        above=[*(measurements(task, evaluation) if evaluation else []), *_shared(plan, result)],
        evaluation=without_curves(evaluation),
        directions={name: len(each) for name, each in result.directions.items()},
        bytes_besides=sum(row["bytes_besides"] for row in result.history),
    )


def _shared(plan: PrivacyFace, result: Any) -> list[str | Table]:
    """What silos showed each other."""
    rows = [row for row in result.history if "silos" in row]  # others are measurements
    besides = sum(row["bytes_besides"] for row in rows)
    backbone = sum(row["bytes_backbone"] for row in rows)
    lines: list[str | Table] = [f"\nbytes sent: {backbone:,} of backbones, {besides:,} besides"]
    if at := getattr(plan.sharing, "at", ()):
        found = ", ".join(f"{name} {len(each)}" for name, each in result.directions.items())
        lines.append(f"directions for the others to use, by silo: {found}")
        if not any(row["silos"] for row in rows if row["round"] in at):
            lines.append(
                "all silos were offline in the rounds of --sharing.at, so they released nothing and trained without; "
                "name more rounds there, or lower --drop-out"
            )
        elif not any(len(each) for each in result.directions.values()):
            lines.append(
                "no cluster was large enough, so silos trained without; the cost is spent. In the next run take a "
                "larger --sharing.radius, fewer --sharing.dimensions, or a lower --sharing.threshold"
            )
    if not plan.covered:
        lines.append(f"\n{result.statement.assumptions[0]}")
    if any(not row["silos"] for row in rows):
        lines.append(f"rounds without any silo: {sum(not row['silos'] for row in rows)}")
    return lines


def _about(options: Any, shape: Sequence[int]) -> dict[str, Any]:
    from sfumato import models

    own = models.is_custom_model(options.model.model)
    return about_run(
        options.data,
        options.model,
        far=options.run.far,
        device=options.run.device,
        input_shape=shape,
        embedding_dim=None if own else embedding_dim_of(options.model),
        epsilon_wanted=options.budget.epsilon,
    )


def _described(parts: SiloParts, silos: Mapping[str, UserDataset]) -> Iterable[str]:
    for name, users in silos.items():
        yield f"{name}: {len(users):,} identities, {users.num_examples:,} pictures"
    for name, more in (("public", parts.public), ("test", parts.test)):
        if more is not None:
            yield f"{name}: {len(more):,} people, {more.num_examples:,} pictures"
    if parts.unassigned:
        yield f"left out: {parts.unassigned:,} identities that --silo-of puts into no silo"
    if parts.dropped:
        yield f"dropped: {parts.dropped:,} identities of people who are in another silo"


def _forecast(plan: PrivacyFace, model: nn.Module, sizes: Sequence[int]) -> dict[str, Any]:
    """What noise leaves of the backbone; nothing for one without noise."""
    from sfumato.training.forecast import trained_sizes

    if not plan.covered:
        return {}
    plan.refuse_small(sizes)
    found = plan.forecast(sizes, trained_sizes(plan, model))
    return {**found.to_json(), "words": found.words(epsilon=plan.statement(sizes).epsilon, unit=plan.unit)}


def _dry_run(plan: PrivacyFace, training: Any, sizes: Sequence[int], found: Mapping[str, Any]) -> Answer:
    """The plan, its statement, whether clusters can be released, and the forecast of the backbone."""
    from sfumato.federated.clustering import expected_cosine

    lines: list[str] = []
    more: dict[str, Any] = {}
    clusters, share = plan.dplc(sizes), training.public_share()
    if clusters is not None and share is not None:
        sharing: Any = plan.sharing
        wide, noise = sharing.dimensions or training.dimension, clusters.noise_multiplier(sum(sizes))
        smallest = f"{list(training.all)[int(np.argmin(sizes))]}'s"
        lines, needed, cap = occupancy(
            sharing.radius, sharing.threshold, wide, min(sizes), noise, of=smallest, group="sharing."
        )
        cosines = {}
        for name, size in zip(training.all, sizes, strict=True):
            expected = share * size
            cosines[name] = expected_cosine(expected, float(np.cos(sharing.radius)), wide, noise)
            can = "used" if expected >= sharing.threshold else "below the threshold"
            lines.append(
                f"{name}: of its {size:,} identities about {expected:,.0f} in the densest cap, if they lie as the "
                f"public people do: {can}; cosine about {max(cosines[name], 0.0):.2f} or more"
            )
        if share * max(sizes) < sharing.threshold:
            lines.append(
                "no silo is likely to release a cluster: take a larger --sharing.radius, fewer "
                "--sharing.dimensions, or a lower --sharing.threshold"
            )
        more = {"needed": needed, "cap_share": cap, "public_share": share, "expected_cosine": cosines}
    done = "model and data were tried out; nothing was trained or written"
    if found:
        more["forecast"] = found
    return dry_run(plan, plan.statement(sizes), done, above=[*lines, ""], **more)


# Who is where.


def read_silos(options: SiloData) -> SiloParts:
    """Open the records of all silos, and the public people.

    Raises:
        InputError: a path is of no use, or options do not go together.
    """
    if not options.data:
        raise InputError("which records? give --data with a folder for each silo, or one with --silo-of or --deal")
    refuse_share(public_share=options.public_share, test_share=options.test_share)
    public = None if options.public is None else _load(options, options.public)
    test = None if options.test is None else _load(options, options.test)
    unassigned = 0
    if len(options.data) > 1:
        if options.silo_of is not None or options.deal is not None or options.public_share or options.test_share:
            raise InputError(
                "--silo-of, --deal, --public-share and --test-share divide one data set, got several; leave them out"
            )
        silos = {_name(path, options.data): _load(options, path) for path in options.data}
    else:
        if (options.silo_of is None) == (options.deal is None):
            raise InputError("one data set is divided into silos by --silo-of or by --deal: give one of the two")
        whole, public, test = _parts(_load(options, next(iter(options.data))), options, public, test)
        silos = _dealt(whole, options) if options.silo_of is None else _assigned(whole, options)
        unassigned = len(whole) - sum(map(len, silos.values()))
    dropped = 0
    if options.drop is not None:
        silos, public, dropped = _without_shared(silos, public, options.drop)
    return SiloParts(silos, public, test, dropped, unassigned)


def _load(options: SiloData, path: str) -> UserDataset:
    from sfumato.data.open import TEXTS_UNDERSTOOD

    sources = [each for each in (*options.data, options.public, options.test) if each is not None]
    if Path(path).is_dir() and not all(Path(each).is_dir() for each in sources):
        options = replace(options, user=None, input=None, label=None, folder=None)  # these are for the tables
    try:
        return options.load(path, options.size, options.channels)
    except InputError as error:
        raise InputError(str(error).removesuffix(TEXTS_UNDERSTOOD)) from None


def _name(path: str, others: Sequence[str]) -> str:
    """The last part of a path, or all of it where that is not unique."""
    names = [Path(other).name for other in others]
    return Path(path).name if names.count(Path(path).name) == 1 else path


def _parts(
    whole: UserDataset, options: SiloData, public: UserDataset | None, test: UserDataset | None
) -> tuple[UserDataset, UserDataset | None, UserDataset | None]:
    """One data set without its public people and those of the test."""
    from sfumato.data import split_users

    for name, share, other in (
        ("public", options.public_share, public),
        ("test", options.test_share, test),
    ):
        if share and other is not None:
            raise InputError(f"give --{name} or --{name}-share, not both")
    if options.public_share + options.test_share == 0:
        return whole, public, test
    split = split_users(
        whole, test=options.test_share, validation=options.public_share, seed=options.split_seed, shared_labels=True
    )
    return split.train, split.validation if options.public_share else public, split.test if options.test_share else test


def _dealt(whole: UserDataset, options: SiloData) -> dict[str, UserDataset]:
    """Silos by a hash of names."""
    from sfumato.data.split import name_keys

    assert options.deal is not None
    at_least(at_least=2, deal=options.deal)
    keys = name_keys(list(map(str, whole.user_ids)), "silo", options.split_seed)
    places = np.floor(keys * options.deal).astype(np.int64)
    return _divided(whole, [f"silo {place + 1}" for place in places.tolist()])


def _assigned(whole: UserDataset, options: SiloData) -> dict[str, UserDataset]:
    """Silos by a table, by a column of the data, or by groups of classes."""
    place = str(options.silo_of)
    if place == _GROUP:
        if whole.label_groups is None:
            raise InputError("--silo-of group needs data whose classes have groups (alphabets); name a table")
        groups = [whole.label_groups[int(whole.examples(user)[1][0])] for user in range(len(whole))]
        return _divided(whole, groups)
    if Path(place).suffix:
        rows = _columns(Path(place), "user", "silo")
    elif options.user is None:
        raise InputError(
            f"--silo-of {place} names a column of a table, which needs --user, too; or give a table (.csv)"
        )
    else:
        rows = _columns(Path(next(iter(options.data))), options.user, place)
    known: dict[str, str] = {}
    for user, silo in rows:
        if silo and known.setdefault(user, silo) != silo:
            raise InputError(f"{user!r:.60} is in two silos, {known[user]} and {silo}; leave the identity in one")
    if not known.keys() & set(map(str, whole.user_ids)):
        raise InputError(f"--silo-of {place} names none of the identities, as {whole.user_ids[0]!s:.60}; correct it")
    return _divided(whole, [known.get(str(user)) for user in whole.user_ids])


def _columns(file: Path, user: str, silo: str) -> list[tuple[str, str]]:
    """Two columns of a table."""
    if file.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            named = pq.read_schema(file).names
            if missing := [name for name in (user, silo) if name not in named]:
                raise InputError(f"--silo-of: {file} has no column {missing[0]!r}; it has {', '.join(named):.200}")
            table = pq.read_table(file, columns=[user, silo])
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"--silo-of: {file} cannot be read as a table: {str(error).splitlines()[0]:.150}"
            ) from None
        rows = [{name: "" if value is None else str(value) for name, value in row.items()} for row in table.to_pylist()]
    else:
        rows = _rows(file, "--silo-of")
    if not rows or not {user, silo} <= rows[0].keys():
        raise InputError(f"--silo-of: {file} needs columns {user} and {silo}, with a row for each identity")
    return [(row[user], row[silo]) for row in rows]


def _divided(whole: UserDataset, silos: Sequence[str | None]) -> dict[str, UserDataset]:
    names = sorted({name for name in silos if name is not None})
    places = np.array([-1 if name is None else names.index(name) for name in silos])
    return {name: whole.subset(np.flatnonzero(places == number)) for number, name in enumerate(names)}


def _rows(file: Path, flag: str) -> list[dict[str, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return [{str(name): value or "" for name, value in row.items()} for row in csv.DictReader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{flag} {file} cannot be read as a table (.csv): {error!s:.200}") from None


def _without_shared(
    silos: Mapping[str, UserDataset], public: UserDataset | None, file: Path
) -> tuple[dict[str, UserDataset], UserDataset | None, int]:
    """Silos and public people with each person of a list in one of them alone; and how many identities left."""
    people = [{_plain(value) for value in row.values() if value.strip()} for row in _rows(file, "--drop")]
    persons: dict[str, list[int]] = {}
    for person, names in enumerate(people):
        for name in names:
            persons.setdefault(name, []).append(person)
    taken: set[int] = set()
    left, dropped = {}, 0
    sources: list[tuple[str | None, UserDataset]] = [*silos.items()]
    sources += [(None, public)] if public is not None else []
    if not any(_plain(str(user)) in persons for _, users in sources for user in users.user_ids):
        example = next(str(user) for _, users in sources for user in users.user_ids)
        raise InputError(f"--drop {file} names none of the identities, as {example:.60}; correct it, or leave it out")
    for silo, users in sources:
        whose = [set(persons.get(_plain(str(user)), ())) for user in users.user_ids]
        there = np.array([not who & taken for who in whose], bool)
        taken |= set().union(*whose)
        dropped += int((~there).sum())
        rest = users if there.all() else users.subset(np.flatnonzero(there))
        if silo is None:
            public = rest
        else:
            left[silo] = rest
    return left, public, dropped


def _plain(name: str) -> str:
    """A name as sources write it in different ways."""
    return " ".join(name.replace("_", " ").split()).casefold()
