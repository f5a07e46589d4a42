"""The tables in the READMEs and PAPERS.md are those of the results."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_table_differs_from_its_results():
    done = subprocess.run(
        [sys.executable, str(ROOT / "recipes" / "tables.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
