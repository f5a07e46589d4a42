"""Writes one page a command into docs/reference/commands/, from the commands' own --help and --help-all.

python docs/make_command_pages.py            writes the pages
python docs/make_command_pages.py --check    tells whether they are up to date
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from generated import bring

from sfumato.cli.commands import COMMANDS
from sfumato.cli.main import main

FOLDER = Path(__file__).resolve().parent / "reference" / "commands"

_RATED = [
    "# a small stand-in for MovieLens' folder",
    "$ mkdir ml-latest-small",
    "$ echo userId,movieId,rating > ml-latest-small/ratings.csv",
    "$ for u in $(seq 300); do echo $u,$((u % 19)),3; echo $u,$((u % 7 + 20)),$((u % 5 + 1)); done \\",
    ">     >> ml-latest-small/ratings.csv",
    "$ seq 0 26 > films.txt",
]

EXAMPLES = {
    "fedemb": [
        "# what would this cost? nothing is trained",
        "$ sfumato fedemb --data glyphs --epsilon 8 --dry-run",
    ],
    "fedavg": ["$ sfumato fedavg --data glyphs --epsilon 8 --cohort 64 --dry-run"],
    "fedsgd": ["$ sfumato fedsgd --data glyphs --noise 2 --rounds 50 --dry-run"],
    "fedrecon": [
        *_RATED,
        "$ sfumato fedrecon --data ml-latest-small --items films.txt --model matrix_factorization "
        "--epsilon 8 --dry-run",
    ],
    "vote ae": [
        "$ sfumato vote ae --agents agents.npz --pool pool.npz --epsilon 3 --delta 1e-3 --dry-run",
        "$ sfumato vote ae --agents agents.npz --pool pool.npz --model lenet300_100 --epsilon 3 --delta 1e-3 \\",
        ">     --queries 100 --epochs 5 --out runs/vote",
    ],
    "vote knn": [
        "$ sfumato vote knn --agents agents.npz --pool pool.npz --features hog --epsilon 1 --dry-run",
    ],
    "personalise": [
        *_RATED,
        "$ sfumato fedrecon --data ml-latest-small --model matrix_factorization --noise 1 --rounds 2 \\",
        ">     --items films.txt --out runs/a",
        "$ sfumato personalise runs/a ml-latest-small --top 10 --out for-each.parquet",
        "# how good is the model for them?",
        "$ sfumato personalise runs/a ml-latest-small --measure",
    ],
    "centralized": ["$ sfumato centralized --data glyphs --rounds 1000 --dry-run"],
    "dpsgd": [
        "# what would this cost? nothing is trained",
        "$ sfumato dpsgd --data glyphs --epsilon 3 --delta 1e-5 --epochs 5 --dry-run",
    ],
    "labeldp pro": [
        "# what would this cost a label? nothing is trained",
        "$ sfumato labeldp pro --data glyphs --epsilon 0.5 --delta 1e-5 --epochs 5 --dry-run",
    ],
    "check-model": [
        "# on records, as a run would; nothing is trained",
        "$ sfumato check-model lenet5 --data glyphs",
        "# without records",
        "$ sfumato check-model lenet5",
        "$ sfumato check-model transformer --kind ids --shape 128",
    ],
    "embed": [
        "$ sfumato data glyphs glyphs.store --identities 40 --images 6",
        "$ sfumato fedemb --data glyphs.store --noise 1 --rounds 1 --client.epochs 1 \\",
        ">     --cohort 2 --out runs/a",
        "$ sfumato embed runs/a glyphs.store --out embeddings.parquet",
    ],
    "search": [
        "$ sfumato data glyphs glyphs.store --identities 40 --images 6",
        "$ sfumato fedemb --data glyphs.store --noise 1 --rounds 1 --client.epochs 1 \\",
        ">     --cohort 2 --out runs/a",
        "$ sfumato embed runs/a glyphs.store --out embeddings.parquet",
        "$ sfumato search embeddings.parquet --query embeddings.parquet --neighbours 3 --out neighbours.parquet",
    ],
    "labeldp train": [
        "# what would this state? no label is drawn (these digits stand in an order that shows them: --shuffle)",
        "$ sfumato labeldp train --data digits.npz --num-classes 10 --model lenet300_100 --epsilon 2 --shuffle "
        "--dry-run",
        "# a hundredth of the budget finds which digits look alike, before any of them is reported",
        "$ sfumato labeldp train --data digits.npz --model lenet300_100 --epsilon 2 --clusters 20 --features hog \\",
        ">     --num-classes 10 --prior-epsilon 0.02 --epochs 10 --batch-size 64 --shuffle --out runs/digits",
    ],
    "labeldp regress": [
        *_RATED,
        "# what would this state? no label is drawn (these numbers stand in an order that shows them: --shuffle)",
        "$ sfumato labeldp regress --data ml-latest-small --model matrix_factorization --low 0.5 --high 5 \\",
        ">     --values 10 --epsilon 2 --shuffle --dry-run",
        "$ sfumato labeldp regress --data ml-latest-small --model neural --low 0.5 --high 5 --values 10 --epsilon 2 "
        "--shuffle",
    ],
    "labeldp randomize": [
        "# a small table of clicks, to try it on",
        "$ echo advert,hour,click > clicks.csv",
        "$ for i in $(seq 2000 | shuf); do echo $((i % 5)),$((i % 24)),$((i % 20 == 0)) >> clicks.csv; done",
        "$ sfumato labeldp randomize clicks.csv --label click --epsilon 1 --classes 0 1 --out noisy.csv",
        "# a fifth of the budget finds how rare clicks are, for each advert; all else goes to the labels, which were",
        "# released before: the statement has the sum",
        "$ sfumato labeldp randomize clicks.csv --label click --epsilon 2 --classes 0 1 \\",
        ">     --prior-epsilon 0.4 --groups advert --total-epsilon 3 --out by-advert.csv",
        "# labels that are numbers, in the bins that are best for them",
        "$ sfumato labeldp randomize clicks.csv --label hour --epsilon 3 --low 0 --high 23 --values 24 \\",
        ">     --prior-epsilon 0.1 --out hours.csv",
    ],
    "ehr fit": [
        "# what would this state? the records are read, and nothing is learned",
        "$ sfumato ehr fit --data patients --dry-run",
        "# a few steps, to try it; without these numbers it takes minutes, and learns something",
        "$ sfumato ehr fit --data patients --epochs 3 --gan-steps 50 --hidden 32 --latent 16 --calibrated-on 100 \\",
        ">     --holdout-share 0.4 --out runs/patients",
    ],
    "ehr sample": [
        "# a run of a few steps, to try it on",
        "$ sfumato ehr fit --data patients --epochs 3 --gan-steps 50 --hidden 32 --latent 16 --calibrated-on 100 \\",
        ">     --out runs/patients",
        "$ sfumato ehr sample --model runs/patients --count 1000 --to made",
        "$ sfumato ehr sample --model runs/patients --count 100 --to women --given sex=f age=40..80 --format meds",
    ],
    "ehr evaluate": [
        "$ sfumato ehr evaluate --real train --holdout held-out --synthetic made --out records.html",
        "# with the run that made the records; what the attacks found goes into its statement",
        "$ sfumato ehr fit --data train --epochs 3 --gan-steps 50 --hidden 32 --latent 16 --calibrated-on 100 \\",
        ">     --holdout-share 0.5 --out runs/patients",
        "$ sfumato ehr sample --model runs/patients --count 60 --to new",
        "$ sfumato ehr evaluate --model runs/patients --synthetic new",
    ],
    "report": [
        "$ sfumato data glyphs glyphs.store --identities 40 --images 6",
        "$ sfumato fedemb --data glyphs.store --noise 1 --rounds 1 --client.epochs 1 \\",
        ">     --cohort 2 --out runs/a",
        "$ sfumato report runs/a --out a.html",
    ],
    "close": [
        "$ sfumato data glyphs glyphs.store --identities 40 --images 6",
        "$ sfumato fedemb --data glyphs.store --noise 1 --rounds 1 --client.epochs 1 \\",
        ">     --cohort 2 --out runs/a",
        "$ sfumato close runs/a",
    ],
    "tally": [
        "# the first of three on one machine, to try it",
        "$ sfumato tally --index 1 --talliers 127.0.0.1:7001 127.0.0.1:7002 127.0.0.1:7003 --out tallier-1",
        "# each on a machine of its own, with the certificate of its host",
        "$ sfumato tally --index 1 --talliers one.example:7001 two.example:7001 three.example:7001 --out tallier \\",
        ">     --listen 0.0.0.0 --certificate one.crt --key one.key --authority authority.crt",
    ],
    "account": [
        "$ sfumato account --noise-multiplier 1 --sampling-rate 0.01 --steps 10000 --delta 1e-5",
        "$ sfumato account --noise-multiplier 1 --sample-size 100 --population 10000 --steps 100 --adjacency replace",
        "# in the words of DP-SGD, for users with up to three examples each; shuffled batches are told beside",
        "$ sfumato account --noise-multiplier 2 --examples 60000 --batch-size 600 --epochs 10 --examples-per-user 3",
        "# epsilon against steps, as a figure",
        "$ sfumato account --noise-multiplier 0.5 --sampling-rate 2e-5 --steps 1000 --delta 1e-8 --plot account.svg",
        "# any event: a file that holds what its to_json() gives",
        """$ echo '{"event": "laplace", "scale": 10.0}' > event.json""",
        "$ sfumato account --event event.json --steps 40",
    ],
    "account tree": [
        "# the first production model with a guarantee for every user",
        "$ sfumato account tree --noise-multiplier 7 --steps 2000 --max-participations 6 --min-separation 313",
    ],
    "account matrix": [
        "$ sfumato account matrix --noise-multiplier 7 --steps 2000 --max-participations 6 --min-separation 313",
    ],
    "calibrate": [
        "# the noise for 10,000 steps",
        "$ sfumato calibrate --epsilon 2 --delta 1e-5 --sampling-rate 0.01 --steps 10000",
        "# the steps for this noise",
        "$ sfumato calibrate --epsilon 2 --delta 1e-5 --sampling-rate 0.01 --noise-multiplier 1.5",
        "# the noise at which nobody finds more than 2 % of the members at 1 % false alarms",
        "$ sfumato calibrate --tpr 0.02 --fpr 0.01 --sampling-rate 0.01 --steps 1000",
    ],
    "extrapolate": [
        "$ sfumato extrapolate --populations 3e6 --multipliers 1 2 4 --figure extrapolate.png",
        "# where sampled noise becomes better than correlated noise",
        "$ sfumato extrapolate --users-per-client 1 --clients-per-round 100 --rounds 400 --noise-multiplier 0.3 \\",
        ">     --populations 3e5 --multipliers 1 2 4 8 --noises tree blt --figure crossover.png",
    ],
    "compare": [
        "$ sfumato account --noise-multiplier 1.2 --sampling-rate 0.01 --steps 5000 --json > small-batches.json",
        "$ sfumato account --noise-multiplier 3.1 --sampling-rate 0.04 --steps 1250 --json > large-batches.json",
        "$ sfumato compare small-batches.json large-batches.json --delta 1e-6",
    ],
    "ledger show": ["$ sfumato ledger show runs/a/ledger.jsonl", "$ sfumato ledger show runs/a --phase pretrain"],
    "ledger verify": ["$ sfumato ledger verify runs/a"],
    "ledger merge": ["$ sfumato ledger merge runs/a other.jsonl --out all.jsonl --unrelated"],
    "data pack": [
        "$ sfumato data pack photos photos.store",
    ],
    "data stores": ["$ sfumato data stores"],
    "data glyphs": ["$ sfumato data glyphs glyphs.store --identities 40 --images 6"],
}
"""What to show above the options; the snippets' test runs it."""

_LEDGER = [
    "# a ledger with two phases and a budget, to try it on",
    "from pathlib import Path",
    "",
    "from sfumato import accounting as acc",
    "from sfumato.ledger import Budget, Ledger",
    "",
    'Path("runs/a").mkdir(parents=True)',
    'with Ledger.open("runs/a/ledger.jsonl", budget=Budget(epsilon=2, delta=1e-6)) as ledger:',
    "    for step in range(200):",
    '        ledger.append(acc.Gaussian(1.1).poisson(0.01), phase="pretrain", step=step)',
    "    for step in range(50):",
    '        ledger.append(acc.Gaussian(2.0).poisson(0.02), phase="train", step=step)',
]

_AGENTS = [
    "# scikit-learn's digits: 40 agents hold some, the others are public",
    "import numpy as np",
    "from sklearn.datasets import load_digits",
    "",
    "x, y = load_digits(return_X_y=True)",
    "x = np.kron(x.reshape(-1, 8, 8) * 15, np.ones((2, 2))).astype(np.uint8)",
    'np.savez("agents.npz", images=x[:1200], users=[f"agent {i % 40}" for i in range(1200)], labels=y[:1200])',
    'np.savez("pool.npz", x_train=x[1200:1700], y_train=y[1200:1700], x_test=x[1700:], y_test=y[1700:])',
]

_PATIENTS = [
    "# made-up patients in three folders, to try it on",
    "from pathlib import Path",
    "",
    "import numpy as np",
    "import pandas as pd",
    "from sfumato import data",
    "",
    "rng = np.random.default_rng(0)",
    'for place, name in enumerate(("train", "held-out", "made")):',
    "    visits = np.arange(180)",
    '    table = {"patient": visits // 3 + 1000 * place, "day": visits % 3 * 30.0, "bili": rng.normal(3, 1, 180)}',
    '    table["sex"] = np.where(visits // 3 % 2, "f", "m")',
    '    records = data.ehr_from_tables(pd.DataFrame(table), id="patient", time="day")',
    "    Path(name).mkdir()",
    '    data.write_ehr_tables(records, f"{name}/visits.csv", f"{name}/static.csv")',
    '    records.schema.save(f"{name}/schema.yaml")',
]

_RECORDS = [
    "# a folder of made-up patients, to try it on",
    "from pathlib import Path",
    "",
    "import numpy as np",
    "import pandas as pd",
    "from sfumato import data",
    "",
    "rng = np.random.default_rng(0)",
    "visits = np.arange(360)",
    "ill, age = rng.normal(size=120)[visits // 3], rng.integers(30, 90, 120)[visits // 3]",
    'table = {"patient": visits // 3, "day": visits % 3 * 30.0, "bili": np.exp(ill + rng.normal(size=360) / 5)}',
    'table["sex"], table["age"] = np.where(visits // 3 % 2, "f", "m"), age',
    'records = data.ehr_from_tables(pd.DataFrame(table), id="patient", time="day")',
    'Path("patients").mkdir()',
    'data.write_ehr_tables(records, "patients/visits.csv", "patients/static.csv")',
    'records.schema.save("patients/schema.yaml")',
]

_DIGITS = [
    "# scikit-learn's digits, as pictures",
    "import numpy as np",
    "from sklearn.datasets import load_digits",
    "",
    "x, y = load_digits(return_X_y=True)",
    "x = np.kron(x.reshape(-1, 8, 8) * 15, np.ones((2, 2))).astype(np.uint8)",
    'np.savez("digits.npz", x_train=x[:1400], y_train=y[:1400], x_test=x[1400:], y_test=y[1400:])',
]

PREPARE = {
    "ehr fit": _RECORDS,
    "ehr sample": _RECORDS,
    "ehr evaluate": _PATIENTS,
    "labeldp train": _DIGITS,
    "vote ae": _AGENTS,
    "vote knn": _AGENTS,
    "ledger show": _LEDGER,
    "ledger verify": _LEDGER,
    "ledger merge": [
        *_LEDGER,
        'with Ledger.open("other.jsonl") as ledger:',
        '    ledger.append(acc.Gaussian(8.0), phase="evaluation")',
    ],
    "data pack": [
        "# a folder with two people, to try it on",
        "from pathlib import Path",
        "",
        "from PIL import Image",
        "",
        'for person in ("ada", "bob"):',
        '    folder = Path("photos") / person',
        "    folder.mkdir(parents=True)",
        "    for i in range(3):",
        '        Image.new("L", (40, 30), 60 * i).save(folder / f"{i}.png")',
    ],
}
"""Python that makes what an example needs."""

SEE = {
    "fedemb": "[Tutorial](../../tutorials/embeddings.md), [how to choose](../../how-to/choose.md), "
    "[virtual clients](../../explanation/virtual-clients.md).",
    "fedavg": "[How to choose](../../how-to/choose.md), [the private sum](../../explanation/private-sum.md).",
    "fedsgd": "[The private sum](../../explanation/private-sum.md).",
    "fedrecon": "[Keep a part of the model with its user](../../how-to/federated-reconstruction.md), "
    "[train on ratings](../../how-to/ratings.md).",
    "personalise": "[Keep a part of the model with its user](../../how-to/federated-reconstruction.md).",
    "vote ae": "[Vote](../../how-to/voting.md), [noisy votes](../../explanation/votes.md).",
    "vote knn": "[Vote](../../how-to/voting.md), [noisy votes](../../explanation/votes.md).",
    "centralized": "[How to choose](../../how-to/choose.md).",
    "dpsgd": "[Train a private classifier](../../how-to/dpsgd.md), "
    "[read a statement](../../how-to/read-a-statement.md).",
    "labeldp pro": "[Publish labels that are private](../../how-to/label-privacy.md), "
    "[label privacy](../../explanation/label-privacy.md).",
    "check-model": "[Train a private classifier](../../how-to/dpsgd.md).",
    "embed": "[Tutorial](../../tutorials/embeddings.md).",
    "search": "[Find a person among embeddings](../../how-to/find-people.md).",
    "labeldp train": "[Publish labels that are private](../../how-to/label-privacy.md), "
    "[label privacy](../../explanation/label-privacy.md).",
    "labeldp regress": "[Publish labels that are private](../../how-to/label-privacy.md), "
    "[label privacy](../../explanation/label-privacy.md).",
    "labeldp randomize": "[Publish labels that are private](../../how-to/label-privacy.md), "
    "[label privacy](../../explanation/label-privacy.md).",
    "ehr fit": "[Generate health records](../../how-to/generate-records.md), "
    "[read and write them](../../how-to/health-records.md).",
    "ehr sample": "[Generate health records](../../how-to/generate-records.md).",
    "ehr evaluate": "[Judge synthetic health records](../../how-to/synthetic-records.md).",
    "report": "[Read a statement](../../how-to/read-a-statement.md).",
    "tally": "[A private tally](../../how-to/private-tally.md), [noisy votes](../../explanation/votes.md).",
    "close": "[Stop and resume](../../how-to/resume.md), [randomness](../../explanation/randomness.md).",
    "account": "[The accountants compared](../../explanation/accountants.md), "
    "[virtual clients](../../explanation/virtual-clients.md), "
    "[cohorts of a fixed size](../../explanation/fixed-size-cohorts.md).",
    "account tree": "[Trees and matrices](../../explanation/trees-and-matrices.md).",
    "account matrix": "[Strategies](../../explanation/strategies.md), "
    "[trees and matrices](../../explanation/trees-and-matrices.md).",
    "calibrate": "[How to calibrate a run](../../how-to/calibrate.md), [how to choose](../../how-to/choose.md).",
    "extrapolate": "[Virtual clients](../../explanation/virtual-clients.md).",
    "compare": "[Compare runs](../../how-to/compare.md), [read a statement](../../how-to/read-a-statement.md).",
    "ledger show": "[Keep a ledger](../../how-to/ledger.md).",
    "ledger verify": "[Keep a ledger](../../how-to/ledger.md).",
    "ledger merge": "[Keep a ledger](../../how-to/ledger.md).",
    "data pack": "[Tutorial](../../tutorials/embeddings.md).",
    "data stores": "[Bring your data](../../how-to/tables.md#more-than-memory-holds).",
    "data glyphs": "[Tutorial](../../tutorials/embeddings.md).",
}

NOT_RUN = {"tally": "talliers wait for each other, on other machines"}
"""Examples that the tests cannot run, and why."""


def pages() -> Iterator[tuple[str, str]]:
    """Every page's name and text."""
    rows = [f"| [`{name}`]({_file(name)}) | {command.summary} |" for name, command in COMMANDS.items()]
    about = (
        "`--help` shows the options that matter, `--help-all` every one. Every command has `--config FILE` for "
        "[settings in a file](../../how-to/config-files.md) and `--json`. `sfumato --completion bash`, `zsh` or `fish` "
        "prints a script that completes commands, options and values: `source <(sfumato --completion bash)`."
    )
    codes = "Exit codes: 0 done, 2 a mistake in what was given (one line says which), 130 stopped by a signal."
    index = ["# Commands", "", "| command | what it does |", "| --- | --- |", *rows, "", about, "", codes, ""]
    yield "index.md", "\n".join(index)
    for name, command in COMMANDS.items():
        summary = command.summary[0].upper() + command.summary[1:]
        lines = [f"# sfumato {name}", "", f"{summary}.", ""]
        if name in PREPARE:
            lines += ["```python", *PREPARE[name], "```", ""]
        lines += [f"<!-- no-run: {NOT_RUN[name]} -->"] if name in NOT_RUN else []
        lines += ["```console", *EXAMPLES[name], "```", ""]
        lines += [f"See also: {SEE[name]}", "", "## The options that matter", ""]
        lines += ["```text", help_text(name, "--help"), "```", ""]
        lines += ["## All options", "", "```text", help_text(name, "--help-all"), "```", ""]
        yield _file(name), "\n".join(lines)


def help_text(name: str, word: str) -> str:
    """What `sfumato NAME WORD` prints in a terminal of 96 columns, without frames."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before = {key: os.environ.pop(key, None) for key in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    os.environ["COLUMNS"], os.environ["NO_COLOR"] = "96", "1"
    try:
        with contextlib.redirect_stdout(out):
            code = main([*name.split(), word])
    finally:
        del os.environ["COLUMNS"], os.environ["NO_COLOR"]
        os.environ.update({key: value for key, value in before.items() if value is not None})
    if code:
        raise RuntimeError(f"sfumato {name} {word} ended with {code}")
    lines = []
    for line in out.buffer.getvalue().decode().splitlines():
        if re.fullmatch(r"[╰─╯]+", line):
            lines.append("")
        elif not re.fullmatch(r"│ ─+ │", line):
            line = re.sub(r"^╭─ (.*?) ─+╮$", r"\1:", line)
            lines.append(re.sub(r"^│ (.*?) *│$", r"  \1", line).rstrip())
    return "\n".join(lines).strip()


def _file(name: str) -> str:
    return f"{name.replace(' ', '-')}.md"


if __name__ == "__main__":
    sys.exit(bring(FOLDER, dict(pages())))
