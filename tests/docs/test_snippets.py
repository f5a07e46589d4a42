"""Every snippet in README and the documentation runs as printed and prints what the page shows."""

import importlib.util
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pytest

from slow import slow_but

ROOT = Path(__file__).resolve().parents[2]


def _module(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


snippets = _module("snippets")

_PAGES = [page for page in snippets.pages() if any(block.runs for block in snippets.blocks(page))]
_SLOW = [page for page in _PAGES if any(block.note == "slow" for block in snippets.blocks(page))]
_LONG = {
    "docs/explanation/accountants.md",
    "docs/explanation/schedules.md",
    "docs/how-to/calibrate.md",
    "docs/how-to/choose.md",
    "docs/how-to/compare.md",
    "docs/how-to/config-files.md",
    "docs/how-to/correlated-noise.md",
    "docs/how-to/federated-reconstruction.md",
    "docs/how-to/find-people.md",
    "docs/how-to/from-opacus.md",
    "docs/how-to/frozen-layers.md",
    "docs/how-to/generate-records.md",
    "docs/how-to/label-privacy.md",
    "docs/how-to/ledger.md",
    "docs/how-to/pretrained.md",
    "docs/how-to/private-tally.md",
    "docs/how-to/ratings.md",
    "docs/how-to/read-a-statement.md",
    "docs/how-to/synthetic-records.md",
    "docs/how-to/tables.md",
    "docs/how-to/text.md",
    "docs/how-to/trainers.md",
    "docs/how-to/voting.md",
    "docs/tutorials/embeddings.md",
    "docs/tutorials/lora.md",
    "docs/tutorials/own-loop.md",
    "docs/tutorials/pictures.md",
    "docs/tutorials/table.md",
}
"""Pages of two processor seconds and more, which belong to the slow tests as well; README stays in the quick part."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _check(page: Path, folder: Path, *, slow: bool) -> None:
    for ran in snippets.run_page(page, folder, slow=slow):
        if ran.expected is not None:
            shown, expected = ran.shown.split(), ran.expected.body.split()
            assert [_same_on_all_processors(*pair) for pair in zip(shown, expected)] == expected, (
                f"{ran.expected.where}: the page shows another result; python docs/snippets.py --update writes it anew"
            )
            assert len(shown) == len(expected), f"{ran.expected.where}: more is printed than the page shows"


def _same_on_all_processors(shown: str, expected: str) -> str:
    """The expected word for one that differs by one in the last of five or more decimals: processors round apart."""
    decimals = len(expected.partition(".")[2])
    try:
        near = decimals >= 5 and abs(Decimal(shown) - Decimal(expected)) <= Decimal(1).scaleb(-decimals)
    except InvalidOperation:
        return shown
    return expected if near else shown


@pytest.mark.parametrize(
    ("shown", "same"), [("0.502268", True), ("0.502267", False), ("0.50226", False), ("0.6", False), ("nan", False)]
)
def test_a_page_may_be_off_by_one_in_the_last_of_many_digits_alone(shown: str, same: bool):
    assert (_same_on_all_processors(shown, "0.502269") == "0.502269") == same
    assert _same_on_all_processors("0.53", "0.54") == "0.53"


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path_factory.getbasetemp().parent / "sfumato-cache"))
    for name in ("COLUMNS", "FORCE_COLOR", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "page",
    slow_but([page for page in _PAGES if page not in _SLOW], *(page for page in _PAGES if _name(page) not in _LONG)),
    ids=_name,
)
def test_the_snippets_of_a_page_run_and_print_what_it_shows(page: Path, tmp_path: Path):
    _check(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", _SLOW, ids=_name)
def test_the_slow_snippets_of_a_page_run_too(page: Path, tmp_path: Path):
    _check(page, tmp_path, slow=True)


def test_every_long_page_is_there():
    assert {_name(page) for page in _PAGES} >= _LONG


def test_a_snippet_that_is_not_run_says_why():
    for page in snippets.pages():
        for block in snippets.blocks(page):
            if block.note.startswith("no-run"):
                assert re.fullmatch(r"no-run: \S.{9,}", block.note), block.where


def test_a_loop_of_one_s_own_takes_at_most_15_lines_in_the_readme():
    loops = [block.body for block in snippets.blocks(ROOT / "README.md") if ".open(" in block.body]
    assert len(loops) == 1
    assert len([line for line in loops[0].splitlines() if line.strip()]) <= 15


def test_a_wrong_result_in_a_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text('```python\nprint("two   words")\n```\n\n<!-- output -->\n```text\ntwo\nwords\n```\n')
    assert [ran.agrees for ran in snippets.run_page(page, tmp_path)] == [True]
    page.write_text(page.read_text().replace("two\n", "too\n"))
    ran = list(snippets.run_page(page, tmp_path))
    assert [each.agrees for each in ran] == [False]
    snippets.update(page, ran)
    assert [each.agrees for each in snippets.run_page(page, tmp_path)] == [True]


def test_a_command_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(snippets, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```console\n$ false\n```\n")
    with pytest.raises(AssertionError, match="exit code 1 of: false"):
        list(snippets.run_page(page, tmp_path))
    page.write_text("<!-- fails -->\n" + page.read_text())
    assert len(list(snippets.run_page(page, tmp_path))) == 1


def test_links_between_files_lead_somewhere():
    made = {ROOT / "docs" / place for place in _module("pages").generated()}  # only the site has them
    for page in [*snippets.pages(), ROOT / "CHANGELOG.md"]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not re.match(r"[a-z]+:|#", target):
                path = (page.parent / target.split("#")[0]).resolve()
                on_site = ROOT / "docs" in page.parents and path in made
                assert on_site or path.exists(), f"{page.relative_to(ROOT)}: {target}"
