"""The jobs of a newcomer's walk, by the real commands, on data that no recipe uses: what each took and brought.

    python benchmarks/newcomer.py [--out DIR] [--only NAME ...] [--epsilon E ...] [--write]

Every job is done once without noise (ε of 0 here; `--epsilon` is absent) and once with ε = 8, with defaults, but for
what a command asks for and for the rounds of the faces. What was done is kept in DIR and not done again. `--write`
puts all that is kept into `results/newcomer.json` and `results/newcomer.md`, in place of the lines of the same job and
ε; with `--only` and no name no job is done.

A line has the commands, their minutes, the longest time without a line of output, the result, the best trivial
baseline, what the command said about it, and faults. A fault is a traceback, more than ten seconds without a word, or
a result that is no better than its baseline where no line said so. Silence is counted in seconds of the processor, as
the machine may do other work, too; of several processes, in those of the busiest. A script of one's own prints a line
when it has its data, so that its own imports do not count.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from unseen import SHARED, UNSEEN

RESULTS = Path(__file__).resolve().parent / "results"
SILENT = 10.0  # seconds without a word that are a fault

NO_BETTER = re.compile(
    r"(?:The (?:\w+ )?(?:model|student|answers)[^.]* (?:is|are) (?:worse|not measurably better) than .*?interval\)"
    r"|The training brought nothing .*? after|The model learned nothing: .*?"
    r"|Fidelity: no nearer to real patients than independent columns)\."
)
"""How a command says that a result is no better than a baseline."""


@dataclass(frozen=True)
class Output:
    """What a command printed, and when.

    Attributes:
        code: its exit code.
        text: of stdout and stderr.
        seconds: that it took.
        busy: seconds of the processor that it took.
        silent: of the processor's, the longest time without a line.
        stopping: seconds from Ctrl-C to the next line; None where none was sent.
    """

    code: int
    text: str
    seconds: float
    busy: float
    silent: float
    stopping: float | None = None


Found = tuple[str, float | None, float | None, bool]
"""A measure, the result, the best baseline, and whether more is better."""


@dataclass(frozen=True)
class Job:
    """One thing that a newcomer tries.

    Attributes:
        name: of it.
        data: what it is tried on.
        write: writes the data into a folder.
        commands: in their order; {budget} stands for the words that choose the privacy, {epsilon} for ε alone, {run}
            for the run's folder.
        found: the result, from the folder of the run and what was printed.
        budget: the words without an ε: no noise, or little where a command asks for some; an ε is always `--epsilon E`.
        interrupted: Ctrl-C is sent to the first command after its second round.
        more: further words where there is an ε, without which such a run is refused.
    """

    name: str
    data: str
    write: Callable[[Path], None]
    commands: tuple[str, ...]
    found: Callable[[Path, str], Found | None]
    budget: str = "--noise 0"
    interrupted: bool = False
    more: str = ""


# Running and listening.


def listen(words: Sequence[str], place: Path, *, interrupt_after: Path | None = None) -> Output:
    """Run a command in a folder, with its output piped.

    Args:
        words: of the command.
        place: the working folder.
        interrupt_after: send SIGINT when this ledger has three lines.
    """
    started, sent, stopping = time.monotonic(), None, None
    silent = used = last = 0.0
    texts: list[str] = []
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    before = _busy()
    process = subprocess.Popen(words, cwd=place, **pipes)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    over = False
    while not over:
        used = max(used, _used(process.pid))
        over = process.poll() is not None
        if text := process.stdout.read():
            texts.append(text.decode(errors="replace"))
            silent, last = max(silent, used - last), used
            if sent is not None and stopping is None:
                stopping = time.monotonic() - sent
        if sent is None and interrupt_after is not None and _lines(interrupt_after) > 2:
            process.send_signal(signal.SIGINT)
            sent = time.monotonic()
        time.sleep(0.1)
    seconds, busy = time.monotonic() - started, _busy() - before
    return Output(process.returncode, "".join(texts), seconds, busy, max(silent, used - last), stopping)


def _busy() -> float:
    """Processor seconds of our children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _used(process: int) -> float:
    """Processor seconds of the busiest of a process and its descendants."""
    family, seconds = {process}, [0.0]
    for pid in sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if pid in family or int(fields[1]) in family:
            family.add(pid)
            seconds.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return max(seconds)


def _lines(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines()) if file.exists() else 0


_PROGRAMS = {
    "sfumato": [sys.executable, "-m", "sfumato"],
    "python": [sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run"],
}


def done(job: Job, epsilon: float, out: Path) -> dict[str, Any]:
    """The line of a job at an ε; done now if it was not."""
    place = out / _folder(job)
    if not place.exists():
        (new := place.with_suffix(".new")).mkdir(parents=True, exist_ok=True)
        job.write(new)
        new.rename(place)
    run = f"run-{epsilon:g}"
    file = place / f"{run}.json"
    if file.exists():
        return json.loads(file.read_text("utf-8"))
    subprocess.run(["rm", "-rf", place / run, *place.glob(f"{run}-*")], check=True)  # of a job that was not finished
    budget = f"--epsilon {epsilon:g} {job.more}".strip() if epsilon else job.budget
    verb = "calibrate" if epsilon else "account"
    commands = [
        " ".join(each.format(budget=budget, run=run, epsilon=f"{epsilon:g}", verb=verb).split())
        for each in job.commands
    ]
    outputs: list[Output] = []
    for number, command in enumerate(commands):
        first, *rest = shlex.split(command)
        after = place / run / "ledger.jsonl" if job.interrupted and number == 0 else None
        said = listen([*_PROGRAMS[first], *rest], place, interrupt_after=after)
        outputs.append(said)
        (place / f"{run}-{number}.log").write_text(said.text, "utf-8")
        if said.code not in (0, 130 if after else 0):
            break
    line = _line(job, epsilon, commands, outputs, place / run)
    file.write_text(json.dumps(line, indent=2) + "\n", "utf-8")
    return line


def stored(job: Job, out: Path) -> list[dict[str, Any]]:
    """The lines of a job that are done."""
    return [json.loads(file.read_text("utf-8")) for file in sorted((out / _folder(job)).glob("run-*.json"))]


def _folder(job: Job) -> str:
    return job.name.replace(" ", "-")


def _line(job: Job, epsilon: float, commands: list[str], outputs: list[Output], run: Path) -> dict[str, Any]:
    text = "\n".join(each.text for each in outputs)
    whole = outputs[-1].code == 0 and len(outputs) == len(commands)
    found = job.found(run, text) if whole else None
    metric, result, baseline, higher = found or ("", None, None, True)
    said = [each.group() for each in NO_BETTER.finditer(" ".join(text.split()))]
    faults = [f"{each.silent:.0f} s without a word" for each in outputs if each.silent > SILENT]
    if "Traceback (most recent call last)" in text:
        faults.append("traceback")
    if result is not None and baseline is not None and not said and (result > baseline) != higher:
        faults.append("no better than the baseline, and no line says so")
    stopping = next((each.stopping for each in outputs if each.stopping is not None), None)
    if stopping is not None and stopping > 1:
        faults.append(f"{stopping:.1f} s until Ctrl-C was acknowledged")
    if whole:
        verdict = said[0] if said else _verdict(result, baseline, higher)
    else:
        verdict = f"exit {outputs[-1].code}: {(outputs[-1].text.strip().splitlines() or [''])[-1]}"
    return {
        "job": job.name,
        "data": job.data,
        "epsilon": epsilon or None,
        "commands": commands,
        "minutes": round(sum(each.seconds for each in outputs) / 60, 2),
        "processor_minutes": round(sum(each.busy for each in outputs) / 60, 2),
        "silent": round(max(each.silent for each in outputs), 1),
        "stopping": stopping,
        "metric": metric,
        "result": result,
        "baseline": baseline,
        "verdict": verdict,
        "faults": faults,
    }


def _verdict(result: float | None, baseline: float | None, higher: bool) -> str:
    if result is None or baseline is None:
        return "done"
    return "better than the baseline" if (result > baseline) == higher else "no better than the baseline"


# Results.


def evaluated(metric: str, *, higher: bool = True) -> Callable[[Path, str], Found]:
    """A measure of the trained model, with the best of its baselines and of the untrained model."""

    def found(run: Path, text: str) -> Found:
        evaluation = json.loads((run / "evaluation.json").read_text("utf-8"))
        trained = evaluation["trained"]
        others = [*trained.get("baselines", {}).values()]
        others += [evaluation["untrained"]] if "untrained" in evaluation else []
        values = [_value(each, metric) for each in others]
        known = [each for each in values if each is not None]
        return metric, _value(trained, metric), (max if higher else min)(known) if known else None, higher

    return found


def _value(row: dict[str, Any], metric: str) -> float | None:
    value = row.get(metric)
    return next(iter(value.values())) if isinstance(value, dict) else value


def answered(run: Path, text: str) -> Found:
    """How many answers of a vote are right, next to the best trivial answers."""
    answers = json.loads((run / "evaluation.json").read_text("utf-8"))["answers"]
    return "right answers", answers["accuracy"], max(each["accuracy"] for each in answers["baselines"].values()), True


def printed(metric: str, pattern: str, baseline: str | None = None) -> Callable[[Path, str], Found]:
    """The last number behind a pattern in what was printed."""

    def found(run: Path, text: str) -> Found:
        numbers = [re.findall(each, text) if each else [] for each in (pattern, baseline)]
        result, other = (float(each[-1]) if each else None for each in numbers)
        return metric, result, other, True

    return found


def neighbours(run: Path, text: str) -> Found:
    """How often the nearest other picture is of the same person, next to a random one."""
    import pyarrow.parquet as pq

    file = run.parent / f"{run.name}-neighbours.parquet"
    table = pq.read_table(file, columns=["query_user", "user", "rank"]).to_pandas()
    nearest = table[table["rank"] == 1]
    users = nearest["query_user"].value_counts().to_numpy()
    by_chance = float((users * (users - 1)).sum() / (len(nearest) * (len(nearest) - 1)))
    return "nearest is the same person", float((nearest["query_user"] == nearest["user"]).mean()), by_chance, True


def page(run: Path, text: str) -> Found:
    """The size of a page."""
    return "kilobytes", round((run.parent / f"{run.name}-page.html").stat().st_size / 1000, 1), None, True


def records(run: Path, text: str) -> Found | None:
    """The AUC of a detector of synthetic records, and of independent columns."""
    line = re.search(r"^detector, AUC .*$", text, re.MULTILINE)
    if line is None:
        return None
    _, made, _, other = re.split(r" {2,}", line.group().strip())  # each with its interval in brackets
    return "detector, AUC", float(made.partition(" ")[0]), float(other.partition(" ")[0]), False


# Data.


def nothing(folder: Path) -> None:
    """No data."""


def _portraits(folder: Path, first: int, last: int, place: Callable[[dict[str, Any]], str]) -> None:
    """Faces of CFP of some people, 32×32, grey."""
    import io

    import pyarrow.parquet as pq
    from PIL import Image

    table = pq.read_table(SHARED / "cfp_112.parquet", columns=["image", "person_id", "pose"])
    who = table["person_id"].to_numpy()
    for number, row in enumerate(table.filter((who > first) & (who <= last)).to_pylist()):
        file = folder / place(row) / f"{number:05}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.open(io.BytesIO(row["image"]["bytes"])).resize((32, 32)).convert("L").save(file)


def faces(folder: Path) -> None:
    """20 of the 40 people of ORL."""
    UNSEEN["ORL"].write(folder)
    for person in range(20, 40):
        shutil.rmtree(folder / "pictures" / f"{person:03}")


def policies(folder: Path) -> None:
    """The first 3,000 policies of pg15."""
    UNSEEN["pg15"].write(folder)
    table = folder / "table.csv"
    table.write_text("".join(table.read_text("utf-8").splitlines(keepends=True)[:3001]), "utf-8")


def likes(folder: Path) -> None:
    """300 users of MovieLens-1M."""
    UNSEEN["likes of 900 users"].write(folder)
    rows = list(csv.reader((folder / "table.csv").open(encoding="utf-8")))
    kept = set(sorted({row[0] for row in rows[1:]})[:300])
    with open(folder / "table.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([rows[0], *(row for row in rows if row[0] in kept)])


def poses(folder: Path) -> None:
    """From the front or from the side, 30 people."""
    _portraits(folder, 0, 30, lambda row: f"pictures/{row['pose']}")


def agents(folder: Path) -> None:
    """40 people who know their own pictures, and those of 20 others as a public pool."""
    _portraits(folder, 0, 40, lambda row: f"agents/{row['person_id']:03}/{row['pose']}")
    _portraits(folder, 150, 170, lambda row: f"pool/{row['pose']}")


def _turns(most: int, limit: int) -> list[dict[str, Any]]:
    """What some speakers said before the court, each up to a number of characters."""
    import pyarrow.parquet as pq

    table = pq.read_table(SHARED / "scotus_speakers.parquet", columns=["speaker", "text", "justice"]).to_pylist()
    left: dict[str, int] = {}
    kept = []
    for row in table:
        if row["speaker"] not in left and len(left) == most:
            continue
        if (rest := left.setdefault(row["speaker"], limit)) > 0:
            kept.append({**row, "text": row["text"][:rest]})
            left[row["speaker"]] -= len(row["text"])
    return kept


def speakers(folder: Path) -> None:
    """100 speakers, 400 characters of each."""
    with open(folder / "turns.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "text"])
        writer.writerows((row["speaker"], row["text"]) for row in _turns(100, 400))


OWN_LOOP = """\
import sys

import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.nn.functional import cross_entropy
from sfumato import DPSGD

epsilon, out = float(sys.argv[1]), sys.argv[2]
values, wines = load_wine(return_X_y=True)
low, high = values.min(axis=0), values.max(axis=0)
values, wines = torch.tensor((values - low) / (high - low)).float(), torch.tensor(wines)
held_out = torch.arange(len(wines)) % 4 == 0
dataset = torch.utils.data.TensorDataset(values[~held_out], wines[~held_out])
print(len(dataset), "wines to train on", flush=True)
model = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
plan = DPSGD(epochs=60, cohort=32)
plan = plan.calibrate(epsilon=epsilon, population=len(dataset)) if epsilon else DPSGD(epochs=60, cohort=32, noise=0)
with plan.open(model, optimizer, dataset, out=out) as private:
    for inputs, labels in private:
        private.backward(cross_entropy(model(inputs), labels, reduction="none"))
print(private.statement.text().splitlines()[1])
right = model(values[held_out]).argmax(1) == wines[held_out]
print(f"accuracy {right.float().mean():.4f}")
print(f"baseline {torch.bincount(wines[held_out]).max() / held_out.sum():.4f}")
"""

TRANSFORMER = """\
import csv
import sys

import torch
from sfumato import DPSGD
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

epsilon, out = float(sys.argv[1]), sys.argv[2]
rows = list(csv.reader(open("justices.csv", encoding="utf-8")))[1:]
tokens = [list(text.encode()[:64].ljust(64, b"\\0")) for text, _ in rows]
tokens, justice = torch.tensor(tokens), torch.tensor([int(each) for _, each in rows])
held_out = torch.arange(len(rows)) % 5 == 0
dataset = torch.utils.data.TensorDataset(tokens[~held_out], justice[~held_out])
print(len(dataset), "turns to train on", flush=True)
model = BertForSequenceClassification(
    BertConfig(vocab_size=256, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128,
               max_position_embeddings=64, num_labels=2, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
plan = DPSGD(epochs=5, cohort=128)
plan = plan.calibrate(epsilon=epsilon, population=len(dataset)) if epsilon else DPSGD(epochs=5, cohort=128, noise=0)
with plan.open(model, optimizer, dataset, out=out) as private:
    for inputs, labels in private:
        logits = model(inputs, attention_mask=(inputs != 0).long()).logits
        private.backward(cross_entropy(logits, labels, reduction="none"))
print(private.statement.text().splitlines()[1])
model.eval()
with torch.no_grad():
    logits = model(tokens[held_out], attention_mask=(tokens[held_out] != 0).long()).logits
print(f"accuracy {(logits.argmax(1) == justice[held_out]).float().mean():.4f}")
print(f"baseline {torch.bincount(justice[held_out]).max() / held_out.sum():.4f}")
"""


def own_loop(folder: Path) -> None:
    """A file with a training loop."""
    (folder / "loop.py").write_text(OWN_LOOP, "utf-8")


def justices(folder: Path) -> None:
    """600 turns, half of justices, and a training loop of Hugging Face's BERT."""
    turns = [row for row in _turns(2654, 8000) if len(row["text"]) > 80]
    rng = np.random.default_rng(0)
    sides = [[row for row in turns if bool(row["justice"]) == side] for side in (False, True)]
    chosen = [side[at] for side in sides for at in rng.choice(len(side), 300, replace=False)]
    order = rng.permutation(len(chosen))
    with open(folder / "justices.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "justice"])
        writer.writerows((chosen[at]["text"], int(bool(chosen[at]["justice"]))) for at in order)
    (folder / "loop.py").write_text(TRANSFORMER, "utf-8")


HEALTH = """\
id: stay_id
unit: stay
subject: subject_id
time: hours
time_unit: hours
outcome: hospital_expire_flag
static:
- {name: gender, kind: categorical, categories: [F, M]}
- {name: anchor_age, kind: numeric, whole: true, range: [18, 91]}
- {name: hospital_expire_flag, kind: categorical, categories: ['0', '1']}
temporal:
- {name: Chloride (50902), kind: numeric, whole: true, range: [80, 130]}
- {name: Creatinine (50912), kind: numeric, whole: false, range: [0, 10]}
- {name: Glucose (50931), kind: numeric, whole: true, range: [30, 500]}
- {name: Potassium (50971), kind: numeric, whole: false, range: [2, 8]}
- {name: Sodium (50983), kind: numeric, whole: true, range: [110, 170]}
- {name: Urea Nitrogen (51006), kind: numeric, whole: true, range: [0, 150]}
"""


def intensive_care(folder: Path) -> None:
    """MIMIC-IV's open 100 patients, with ranges that are known without them."""
    (folder / "mimic").symlink_to((SHARED / "mimic_iv_demo").resolve())
    (folder / "schema.yaml").write_text(HEALTH, "utf-8")


# The jobs.

_RATINGS = "--user user --item item --value value"

JOBS: tuple[Job, ...] = (
    Job(
        "faces",
        "ORL: 20 people, 200 pictures of 32×32",
        faces,
        ("sfumato fedemb --data pictures --rounds 10 {budget} --out {run}",),
        evaluated("recall_at_far"),
    ),
    Job(
        "pictures",
        "CFP: front or side, 420 pictures of 32×32",
        poses,
        ("sfumato dpsgd --data pictures {budget} --out {run}",),
        evaluated("accuracy"),
        more="--public-classes",
    ),
    Job(
        "table",
        "pg15: 3,000 policies, claim or none",
        policies,
        ("sfumato dpsgd --data table.csv --schema schema.yaml {budget} --out {run}",),
        evaluated("auc"),
    ),
    Job(
        "own loop",
        "wine of scikit-learn: 178 wines, 3 classes",
        own_loop,
        ("python loop.py {epsilon} {run}",),
        printed("accuracy", r"accuracy ([\d.]+)", r"baseline ([\d.]+)"),
    ),
    Job(
        "Hugging Face",
        "600 turns before the court: a justice or not",
        justices,
        ("python loop.py {epsilon} {run}",),
        printed("accuracy", r"accuracy ([\d.]+)", r"baseline ([\d.]+)"),
    ),
    Job(
        "text",
        "100 speakers before the court, 400 characters each",
        speakers,
        ("sfumato fedavg --data turns.csv --text characters {budget} --out {run}",),
        evaluated("accuracy"),
    ),
    Job(
        "ratings",
        "likes of 300 users of MovieLens-1M",
        likes,
        (
            f"sfumato fedrecon --data table.csv {_RATINGS} --items films.txt {{budget}} --out {{run}}",
            f"sfumato personalise {{run}} table.csv {_RATINGS} --top 5 --out {{run}}-films.parquet",
        ),
        evaluated("rmse", higher=False),
    ),
    Job(
        "vote of models",
        "CFP: 40 people with 14 pictures, a pool of 280",
        agents,
        ("sfumato vote ae --agents agents --pool pool {budget} --out {run}",),
        answered,
        budget="--noise-std 1",
    ),
    Job(
        "vote of neighbours",
        "CFP: 40 people with 14 pictures, a pool of 280",
        agents,
        ("sfumato vote knn --agents agents --pool pool {budget} --out {run}",),
        answered,
        budget="--noise-std 1",
    ),
    Job(
        "labels of classes",
        "pg15: 3,000 policies, claim or none",
        policies,
        ("sfumato labeldp train --data table.csv --schema schema.yaml {budget} --out {run}",),
        evaluated("auc"),
        budget="",
    ),
    Job(
        "labels of numbers",
        "diabetes of scikit-learn: 442 people, progression / 100",
        UNSEEN["diabetes"].write,
        ("sfumato labeldp regress --data table.csv --schema schema.yaml --low 0 --high 4 {budget} --out {run}",),
        evaluated("rmse", higher=False),
        budget="",
    ),
    Job(
        "health records",
        "MIMIC-IV demo: 139 stays of 100 patients, 6 laboratory values",
        intensive_care,
        (
            "sfumato ehr fit --mimic-iv mimic {budget} --out {run}",
            "sfumato ehr sample --model {run} --count 500 --to {run}-made",
            "sfumato ehr evaluate --model {run} --synthetic {run}-made",
        ),
        records,
        budget="--items 50902 50912 50931 50971 50983 51006",
        more="--schema schema.yaml --horizon 500",
    ),
    Job(
        "correlated noise",
        "pg15: 3,000 policies, claim or none",
        policies,
        ("sfumato dpsgd --data table.csv --schema schema.yaml --cohort shuffled {budget} --out {run}",),
        evaluated("auc"),
        more="--noise auto",
    ),
    Job(
        "accounting",
        "20,000 examples, batches of 1,024, 20 epochs",
        nothing,
        ("sfumato {verb} --examples 20000 --batch-size 1024 --epochs 20 {budget}",),
        printed("epsilon or noise multiplier", r"(?:best: epsilon|noise_multiplier) ([\d.]+)"),
        budget="--noise-multiplier 1",
    ),
    Job(
        "stop and resume",
        "pg15: 3,000 policies, claim or none",
        policies,
        (
            "sfumato dpsgd --data table.csv --schema schema.yaml {budget} --out {run}",
            "sfumato dpsgd --resume {run}",
        ),
        evaluated("auc"),
        interrupted=True,
    ),
    Job(
        "two processes",
        "breast cancer of scikit-learn: 569 women",
        UNSEEN["breast cancer"].write,
        (
            "torchrun --standalone --nproc-per-node 2 -m sfumato dpsgd --data table.csv --schema schema.yaml {budget} "
            "--out {run}",
        ),
        evaluated("auc"),
    ),
    Job(
        "embed and search",
        "ORL, with the model of the faces",
        nothing,
        (
            "sfumato embed ../faces/{run} ../faces/pictures --out {run}-vectors.parquet",
            "sfumato search {run}-vectors.parquet --query {run}-vectors.parquet --neighbours 1 "
            "--out {run}-neighbours.parquet",
        ),
        neighbours,
    ),
    Job(
        "page",
        "the runs of pictures and table",
        nothing,
        ("sfumato report ../pictures/{run} ../table/{run} --out {run}-page.html",),
        page,
    ),
)


def shown(line: dict[str, Any]) -> str:
    """A line of the table in Markdown."""
    numbers = ["–" if each is None else f"{each:.4g}" for each in (line["result"], line["baseline"])]
    commands = "<br>".join(f"`{each}`" for each in line["commands"])
    epsilon = "–" if line["epsilon"] is None else f"{line['epsilon']:g}"
    cells = [
        line["job"],
        line["data"],
        epsilon,
        commands,
        f"{line['minutes']:.1f}",
        f"{line['processor_minutes']:.1f}",
        f"{line['silent']:.0f}",
    ]
    cells += [line["metric"], *numbers, line["verdict"], "; ".join(line["faults"]) or "none"]
    return "| " + " | ".join(each.replace("|", "/") for each in cells) + " |"


_COLUMNS = ("job", "data", "ε", "commands", "minutes", "of the processor", "silent s", "measure", "result")
_COLUMNS += ("baseline", "what it said", "faults")
HEADER = f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}\n"


def main() -> None:
    """Do the jobs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/newcomer"))
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--epsilon", nargs="*", type=float, default=[0.0, 8.0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(HEADER, end="")
    for job in JOBS:
        for epsilon in options.epsilon if options.only is None or job.name in options.only else ():
            print(shown(done(job, epsilon, options.out)), flush=True)
    if options.write:
        file = RESULTS / "newcomer.json"
        lines = [*json.loads(file.read_text("utf-8")), *(line for job in JOBS for line in stored(job, options.out))]
        known = {(line["job"], line["epsilon"]): line for line in lines}  # later lines replace earlier ones
        found = [known[job.name, each] for job in JOBS for each in (None, 8.0) if (job.name, each) in known]
        head = "The jobs of a newcomer's walk, written by `benchmarks/newcomer.py --write`.\n\n"
        (RESULTS / "newcomer.md").write_text(head + HEADER + "\n".join(map(shown, found)) + "\n", "utf-8")
        file.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
