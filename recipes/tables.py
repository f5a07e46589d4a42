"""Write every recipe's results.json into its README's table, and all of them into PAPERS.md.

    python recipes/tables.py [--check]

Another table of a recipe, noisy_weights.json for example, goes into the page of its name, noisy_weights.md.

The table stands between the lines `<!-- results -->` and `<!-- end of results -->`. --check changes nothing and fails
where a file would change.

PAPERS.md begins with headlines.json: a figure of each paper next to ours, which is looked up in the recipe's rows, and
whether both are of the same data.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COLUMNS = (
    ("people to choose by", "validation"),
    ("passes over the data", "passes"),
    ("noise multiplier", "noise_multiplier"),
    ("predicted noise on sums", "predicted_error"),
    ("macro F1", "macro_f1"),
    ("mean average precision", "mean_average_precision"),
    ("noise on a count, votes", "noise_std"),
    ("ε for one {unit}", "epsilon"),
    ("ε, paper's convention", "epsilon_papers_convention"),
    ("perplexity", "perplexity"),
    ("within ½", "within_half"),
    ("log loss", "log_loss"),
    ("ε among 100,000", "epsilon_100000"),
    ("ε among 1,000,000", "epsilon_1000000"),
    ("answers right", "answers"),
    ("ε* on these votes, not private", "epsilon_votes"),
    ("kB an agent sends", "kilobytes"),
    ("kB a user sends in a round", "kilobytes_sent"),
    ("paper", "paper"),
    ("paper, within ½", "paper_within_half"),
)
GRIDS = {"epsilon_wanted": "ε", "weight_noise": "σ", "label_epsilon": "ε", "clusters": "clusters", "measure": ""}
"""Fields of rows that make a column each, and how the column calls them; a measure is called as it is."""
TABLES = (
    "results.json",
    "batches.json",
    "divisions.json",
    "joint.json",
    "noisy_weights.json",
    "people.json",
    "raw.json",
    "squeezenet.json",
    "trained.json",
)
OTHER_DATA = {
    "fedrecon_movielens": "MovieLens-1M",
    "fedrecon_shakespeare": "StackOverflow",
    "voting_digits": "other digits",
}
"""What the figures of a recipe's paper are of, where that are not the recipe's data."""
START, END = "<!-- results -->", "<!-- end of results -->"


def table(rows: list[dict], papers_data: str | None = None) -> str:
    """Markdown tables of one recipe: one for each data set and measure.

    Args:
        rows: of its results.
        papers_data: what the paper's figures are of, where that are other data than the recipe's.
    """
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["metric"]), []).append(row)
    found = []
    for group in groups.values():
        text = (_grid if GRIDS.keys() & group[0].keys() else _one_table)(group)
        caption = f"{group[0]['dataset']}; {_over(group)}{_deltas(group)}"
        if papers_data and any(row.get("paper") is not None for row in group):
            caption += f"; the paper's figures are of {papers_data}"
        found.append(f"{text}\n\n{caption}.")
    return "\n\n".join(found)


def _one_table(rows: list[dict]) -> str:
    shown = [(title, key) for title, key in COLUMNS if any(row.get(key) is not None for row in rows)]
    unit = next((row["unit"] for row in rows if row["unit"]), "unit")
    titles = [title.format(unit=unit) for title, _ in shown]
    lines = [
        f"| method | {rows[0]['metric']} | " + " | ".join(titles) + " |",
        "| --- " * (2 + len(shown)) + "|",
    ]
    for row in rows:
        reported = [row["method"], _figure(row), *(number(row.get(key)) for _, key in shown)]
        lines.append("| " + " | ".join(reported) + " |")
    return "\n".join(lines)


def _grid(rows: list[dict]) -> str:
    """A row for each method, and one for its paper; a column for each value of the field that the rows differ in."""
    key = next(key for key in GRIDS if key in rows[0])
    if key == "measure":
        columns = titles = list(dict.fromkeys(row[key] for row in rows))
    else:
        columns = sorted({row[key] for row in rows}, key=lambda value: (value is None, value or 0))  # None: without it
        titles = [f"without {GRIDS[key]}" if column is None else f"{GRIDS[key]} = {column:g}" for column in columns]
    lines = [f"| {rows[0]['metric']} | " + " | ".join(titles) + " |"]
    lines.append("| --- " * (1 + len(columns)) + "|")
    for method in dict.fromkeys(row["method"] for row in rows):
        found = {row[key]: row for row in rows if row["method"] == method}
        reported = [_figure(found[column]) if column in found else "–" for column in columns]
        lines.append("| " + " | ".join([method, *reported]) + " |")
        papers = [found.get(column, {}).get("paper") for column in columns]
        if any(paper is not None for paper in papers):
            lines.append("| " + " | ".join([f"{method}, paper", *map(number, papers)]) + " |")
    return "\n".join(lines)


def _deltas(rows: list[dict]) -> str:
    """Of each unit, where there are two: reports of labels have δ = 0, gradients next to them have not."""
    found: dict[str, set[float]] = {}
    for row in rows:
        if row.get("unit"):
            found.setdefault(row["unit"], set()).add(row.get("delta") or 0.0)
    different = sorted(set().union(*found.values()))
    if len(found) < 2 or len(different) < 2:
        return "".join(f"; δ = {delta:.3g}" for delta in different if delta)
    of_units = (
        f"{' or '.join(f'{delta:.3g}' for delta in sorted(deltas))} for one {unit}" for unit, deltas in found.items()
    )
    return f"; δ = {', '.join(of_units)}"


def _over(rows: list[dict]) -> str:
    """What the figures are over."""
    counts = {row["seeds"] for row in rows}
    if all("low" in row for row in rows):
        lone = ", one seed of some methods" if 1 in counts and len(counts) > 1 else ""
        return f"with intervals of 95 %, both as means over {max(counts)} seeds{lone}"
    if counts == {1}:
        return "one seed"
    lone = ", one seed where there is no ±" if 1 in counts else ""
    return f"mean ± standard deviation over {max(counts)} seeds{lone}"


def _figure(row: dict) -> str:
    if "low" in row:
        return f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    return f"{row['mean']:.3f} ± {row['std']:.3f}" if row["seeds"] > 1 else f"{row['mean']:.3f}"


def number(value: float | None) -> str:
    """Four digits, or a dash."""
    return "–" if value is None else f"{float(value):.4g}"


def headlines() -> str:
    """The figures that papers are known for next to ours, a row each.

    Returns:
        a Markdown table. "different" stands where paper and recipe have different data: such figures do not compare.

    Raises:
        KeyError: a recipe has no such row.
    """
    lines = ["| system | figure | paper | its data | ours | our data | same data? |", "| --- " * 7 + "|"]
    for each in json.loads((ROOT / "headlines.json").read_text("utf-8")):
        paper = each["paper"] if isinstance(each["paper"], str) else number(each["paper"])
        system = f"[{each['system']}](recipes/{each['recipe']}/README.md)"
        ours, data, same = "–", each.get("note", ""), "–"
        if "row" in each:
            ours, data = number(_found(each)), each["ours"]
            same = "the same" if each["ours"] == each["theirs"] else "different"
        lines.append(f"| {system} | {each['figure']} | {paper} | {each['theirs']} | {ours} | {data} | {same} |")
    return "\n".join(lines)


def _found(headline: dict) -> float:
    """Our figure of a headline; with `short_of`, by how many per cent it is below that row's."""
    rows = json.loads((ROOT / headline["recipe"] / "results.json").read_text("utf-8"))

    def figure(wanted: dict) -> float:
        for row in rows:
            if all(row.get(key) == value for key, value in wanted.items()):
                return row[headline.get("field", "mean")]
        raise KeyError(f"{headline['recipe']}/results.json has no row with {wanted}")

    if "short_of" in headline:
        return 100 * (1 - figure(headline["row"]) / figure(headline["short_of"]))
    return figure(headline["row"])


def main() -> int:
    """Rewrite the files; return how many would change under --check."""
    check = "--check" in sys.argv
    changed = []
    papers = [
        "# Papers and our numbers",
        "",
        "Generated by `python recipes/tables.py` from each recipe's results.json.",
        "",
        headlines(),
    ]
    for results in sorted(path for name in TABLES for path in ROOT.glob(f"*/{name}")):
        text = table(json.loads(results.read_text()), OTHER_DATA.get(results.parent.name))
        plain = results.name == "results.json"
        page = results.with_name("README.md") if plain else results.with_suffix(".md")
        before = page.read_text()
        head, rest = before.split(START)
        after = f"{head}{START}\n\n{text}\n\n{END}{rest.split(END)[1]}"
        changed += replace(page, after, check)
        name = results.parent.name if plain else f"{results.parent.name}, {results.stem}"
        papers += ["", f"## [{name}]({page.relative_to(ROOT.parent)})", "", text]
    changed += replace(ROOT.parent / "PAPERS.md", "\n".join(papers) + "\n", check)
    for path in changed:
        print(f"{'differs' if check else 'wrote'}: {path.relative_to(ROOT.parent)}")
    return len(changed) if check else 0


def replace(path: Path, text: str, check: bool) -> list[Path]:
    """Write a file if its text changes."""
    if path.exists() and path.read_text() == text:
        return []
    if not check:
        path.write_text(text)
    return [path]


if __name__ == "__main__":
    sys.exit(main())
