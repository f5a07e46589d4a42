"""`sfumato ehr sample`: new health records from a run, streamed into a folder that appears when it is whole."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from sfumato._check import InputError, whole
from sfumato.algorithms import SYNTHETIC
from sfumato.cli.console import bar, notify, say, say_json
from sfumato.cli.ehr.folder import Layout, refuse_taken, write_folder
from sfumato.cli.ehr.given import conditions
from sfumato.cli.ehr.options import refuse_baseline
from sfumato.cli.options.threads import use_threads
from sfumato.cli.parse import CommonOptions, gathered, parse


@dataclass(frozen=True, kw_only=True)
class SampleOptions(CommonOptions):
    """What to draw.

    Attributes:
        model: folder of the run that learned (`sfumato ehr fit`), or the model.safetensors of one.
        count: how many patients.
        to: a new folder, which appears when it is whole.
        format: visits.parquet and static.parquet, or the same as .csv, with schema.yaml; a data set of MEDS 0.4, whose
            events say that they are synthetic; or events.parquet with schema.yaml.
        given: conditions on static columns, several if need be: NAME=CATEGORY, NAME=LOWEST..HIGHEST of a number.
        seed: the same records again; without it nobody can draw them again.
        threads: CPU threads; None leaves it to torch.
    """

    model: Path
    count: int
    to: Path
    format: Layout = "parquet"
    given: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE [NAME=VALUE ...]")] = ()
    seed: int | None = None
    threads: int | None = None


def ehr_sample(argv: Sequence[str]) -> int:
    about = (
        "Draw new patients from a model of health records. They are post-processing of the model: they are as private "
        "as that, however many are drawn."
    )
    options = parse(SampleOptions, gathered(argv, "given"), command="ehr sample", about=about)
    whole(count=options.count)
    if options.seed is not None:
        whole(at_least=0, seed=options.seed)
    refuse_taken(options.to)
    use_threads(options.threads)
    made = load_synthesizer(options.model)
    given = conditions(options.given, made.schema)
    if given and "given" not in inspect.signature(made.sample).parameters:
        raise InputError(f"--given is not for {type(made).__name__}, whose records follow no conditions; leave it out")
    with bar("patients") as progress:
        records = made.sample(
            options.count, seed=options.seed, progress=progress, **({"given": given} if given else {})
        )
        write_folder(records, options.to, options.format, synthetic=True)
    _note(options)
    if options.json:
        say_json({"folder": options.to, "patients": options.count, "format": options.format, "given": options.given})
        return 0
    say(f"{options.count:,} synthetic patients: {options.to}")
    return 0


def load_synthesizer(model: Path) -> Any:
    """The synthesizer of a run, by the name of its plan.

    Raises:
        InputError: it is no run that learned from health records, or has not ended.
    """
    from sfumato.models.weights import read_metadata  # late: --help needs no torch
    from sfumato.runs import RunFolder

    if not model.exists():
        raise InputError(f"there is no {model}; give the folder of a run of sfumato ehr fit")
    file = model / "model.safetensors" if model.is_dir() else model
    if model.is_dir():
        name = RunFolder(model).read_plan().get("plan")
        if name in SYNTHETIC and not (file.exists() and read_metadata(file)):
            raise InputError(
                f"{model} holds no model: the run has not ended; go on with: sfumato ehr fit --resume {model}"
            )
    else:
        settings = read_metadata(file).get("settings")
        name = settings.get("plan") if isinstance(settings, dict) else None
    refuse_baseline(name, model)
    if name not in SYNTHETIC:
        raise InputError(f"{model} did not learn from health records; give the folder of a run of sfumato ehr fit")
    return SYNTHETIC[name].read(model)


def _note(options: SampleOptions) -> None:
    """Note it in the run; where that cannot be written, the records are there all the same."""
    from sfumato.synthesis.history import note_sample  # late: --help needs no torch

    if not options.model.is_dir():
        return
    try:
        note_sample(
            options.model,
            options.to,
            count=options.count,
            layout=options.format,
            given=options.given,
            seeded=options.seed is not None,
        )
    except (OSError, InputError) as error:
        told = f"{error.strerror}" if isinstance(error, OSError) else str(error)
        notify(f"{options.to} is whole, but {options.model} does not know of it: {told}")
