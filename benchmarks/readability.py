"""How easily the statement, README, help and documentation are read: length of sentences and rare words.

A word is rare if it is neither among the 5,000 most common English ones nor in `GLOSSARY`. Needs `wordfreq`, which
nothing else here does:

    pip install wordfreq
    python benchmarks/readability.py [--pages] [--json FILE]
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from rows import shown
from wordfreq import top_n_list

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 16
"""The mean length of sentences to aim at, in words."""

GLOSSARY = set(
    re.findall(
        r"\S+",
        """
        accountant accounting accuracy add adjacency adaptive aggregation agent algorithm amplification anonymous
        audit augmentation backbone backward banded baseline batch bayes benchmark bernoulli binomial bisr blt
        budget buffered calibrate calibration categorical centralized checkpoint classifier client clipping cohort
        command composition composes config console contribution convolution correlated covariance cpu cryptographic
        csprng csv cuda curve dataset decoder delta deltas differential differentially discrete dp dropout ehr
        embedding embeddings encoder epoch epochs epsilon estimator evaluation example federated finetune fpr frozen
        gan gaussian gpu gradient gradients hash held-out histogram html hyperparameter identity inference
        iterations json label labeldp laplace layer layers ledger linear logits lora loss lstm matrix mechanism
        membership metadata metric metrics micro-batch micro-batches mnist model momentum multiplier neighbour
        neighbours neural noise noisy norm normalisation nonce npz numpy opacus optimiser optimizer optimizers
        option parameter parameters parquet pld poisson posterior pretrained pretraining prior privacy private
        probability projection python pytorch quantile query random randomise randomised randomly reader recall
        regression release renyi rényi replay repository resume rng rounding rounds sampling scheduler schema seed
        seeded sensitivity sfumato sgd shuffled snippet softmax split statement std stochastic store subset
        synthetic tally tensor tokens torch tpr trade-off training transformer tuple unit update user users utility
        validation variance vector vectors virtual vocabulary voting weights workers yaml zcdp
        """,
    )
)
"""The field's terms, which no plain word replaces."""


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence; fragments of one or two words are left out."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
            words = re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*", sentence)
            if len(words) > 2:
                found.append(words)
    return found


def prose_of_markdown(text: str) -> str:
    """A page without code, tables, headings and the targets of links; each item of a list is a paragraph."""
    text = re.sub(r"^```[\s\S]*?^```$|^    .*$|^\|.*$|^#.*$|<!--.*-->", "", text, flags=re.M)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    return re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.M)


def prose_of_terminal(text: str) -> str:
    """What a command prints, without the names of options and tables; each of its items is a paragraph."""
    text = re.sub(r"^\s*\$.*$|^usage:.*$|^.*[─│].*$", "", text, flags=re.M)
    text = re.sub(r"^--\S+.*?(?:  |$)|^\s*- |^  [A-Z]\w+: ", "\n\n", text, flags=re.M)
    return re.sub(r"\(default:[^)]*\)|--[\w.-]+", "", text)


def printed(*command: str) -> str:
    """What a command of sfumato prints."""
    asked = [sys.executable, "-m", "sfumato", *command]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def texts(pages: bool) -> dict[str, str]:
    """The texts to measure, by name.

    Args:
        pages: each page of the documentation as well.
    """
    run = ("--epsilon", "2", "--population", "100000", "--cohort", "128", "--dry-run")
    statement = printed("fedemb", *run)
    overview = re.search(r"─\n(.*?)\n\n", printed("--help"), re.S)
    assert overview is not None
    commands = re.findall(r"^(\S.*?)  ", overview[1], re.M)
    documents = {
        str(page.relative_to(ROOT)): prose_of_markdown(page.read_text(encoding="utf-8"))
        for folder in ("tutorials", "how-to", "explanation")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    }
    found = {
        "statement": prose_of_terminal(statement[statement.index("\nGuarantee") :]),
        "README": prose_of_markdown((ROOT / "README.md").read_text(encoding="utf-8")),
        "help": "\n\n".join(prose_of_terminal(printed(*name.split(), "--help-all")) for name in commands),
    }
    for folder in ("tutorials", "how-to", "explanation"):
        found[folder] = "\n\n".join(text for name, text in documents.items() if f"/{folder}/" in name)
    return found | (documents if pages else {})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", action="store_true", help="a row for each page of the documentation, too")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    common = set(top_n_list("en", 5000)) | GLOSSARY
    rows = []
    for name, text in texts(options.pages).items():
        each = sentences(text)
        words = [word.lower() for sentence in each for word in sentence]
        rare = [word for word in words if not {word, re.sub(r"(s|es|ed|d|ing|'s)$", "", word)} & common]
        rows.append(shown(f"{name}: words a sentence", len(words) / len(each), LONGEST, "goal", "words", 1.0))
        rows.append(shown(f"{name}: rare words", 100 * len(rare) / len(words), 100, "all words", "%", None))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
