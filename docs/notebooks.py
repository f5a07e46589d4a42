"""Each tutorial as a notebook: made from its page when the site is built, executed, and linked from the page.

A hook of mkdocs. Fences that run become cells, what lies between them text; the results that a page shows are left
out, since the notebook has its own. Notebooks are not kept in the repository: all that is in them is in the page, and
their results change with every run. With NOTEBOOKS=plain in the environment they are not executed.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import snippets
from nbclient import NotebookClient

_COMMENT = re.compile(r"^<!--.*?-->\n", re.M)
_RELATIVE = re.compile(r"\[([^\]]*)\]\((?![a-z]+:)[^)\s]*\)")
_TIMEOUT = 300


def notebook(page: Path) -> Any:
    """The cells of a page, not executed."""
    text = page.read_text(encoding="utf-8")
    cells, since = [], 0
    for block in snippets.blocks(page):
        shown = block.kind == "text" and block.note.startswith("output")
        if not (block.runs or shown):
            continue
        start, end = block.whole
        cells.append(_words(text[since:start]))
        if block.runs:
            code = block.body
            if block.kind != "python":  # in one script, since a failing "!command" would go unnoticed
                code = "\n".join(["%%bash -e", *snippets.commands(block)])
            cells.append(nbformat.v4.new_code_cell(code.rstrip()))
        since = end
    cells.append(_words(text[since:]))
    cells = [cell for cell in cells if cell.source]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # the library's own are random
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def execute(made: Any) -> None:
    """Run the cells in an empty folder and keep what they print; what they warn of names folders of this machine.

    Raises:
        CellExecutionError: a cell fails.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(made, timeout=_TIMEOUT, record_timing=False, coalesce_streams=True, resources=place)
        client.execute(env=environment)
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]


def _words(text: str) -> Any:
    """A cell of text; links to other pages lead nowhere from a file that was downloaded."""
    return nbformat.v4.new_markdown_cell(_RELATIVE.sub(r"\1", _COMMENT.sub("", text)).strip())


# ---- the hook


def on_files(files: Any, config: Any) -> Any:
    """Put a notebook next to each tutorial."""
    from mkdocs.structure.files import File

    for page in list(files.documentation_pages()):
        if _is_tutorial(page.src_uri):
            made = notebook(Path(page.abs_src_path))
            if os.environ.get("NOTEBOOKS") != "plain":
                execute(made)
            files.append(File.generated(config, _notebook_of(page.src_uri), content=nbformat.writes(made)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link it below the title."""
    if not _is_tutorial(page.file.src_uri):
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n[This page as a notebook]({Path(_notebook_of(page.file.src_uri)).name}){{ download }}\n{rest}"


def _is_tutorial(uri: str) -> bool:
    return uri.startswith("tutorials/")


def _notebook_of(uri: str) -> str:
    return uri.removesuffix(".md") + ".ipynb"
