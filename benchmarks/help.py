"""Processor time of every command's `--help`, next to importing the two libraries that every help needs.

    python benchmarks/help.py [--quick] [--json FILE]

Each help and `python -c 'import tyro, numpy'` are processes of their own, in turns; the median of several is shown. The
goal is twice the import. Bytecode must have been written: a process that compiles sfumato takes as long again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rows import shown

from sfumato.cli.commands import COMMANDS

GOAL = 2.0
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}


def processor_time(words: Sequence[str]) -> float:
    """Milliseconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one run of each")
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    imports = ["-c", "import tyro, numpy"]
    print(f"  {'help of':48}{'ours':>12}{'imports':>12}", flush=True)
    found = []
    for name in COMMANDS:
        help_of = ["-m", "sfumato", *name.split(), "--help"]
        processor_time(help_of)  # writes bytecode
        pairs = [(processor_time(help_of), processor_time(imports)) for _ in range(1 if options.quick else 5)]
        ours, other = (median(each) for each in zip(*pairs, strict=True))
        found.append(shown(name, ours, other, "import tyro, numpy", "ms", GOAL))
    print(f"  {sum(each['met'] for each in found)} of {len(found)} commands meet the goal")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
