"""Health records from file to file: read stays in intensive care, learn, and write 100,000 synthetic ones.

    python benchmarks/ehr_speed.py [--quick] [--json FILE]

PhysioNet 2012, set A (4,000 stays, 1.7 million rows) with `EHRSafe()` as it is, on all cores. Each is a process, whose
largest memory is reported too. Needs ../shared/data. Next to limits: read in 20 s, learn in 15 minutes on two cores,
sample and write in 2 minutes and 2 GB.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from rows import shown

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
COUNT = 100_000
READ_S, FIT_MIN, SAMPLE_MIN, GIB = 20.0, 15.0, 2.0, 2e9 / 2**30
READ = f"""
from sfumato.data.ehr.physionet2012 import physionet2012
records = physionet2012({str(DATA / "physionet2012_set_a.parquet")!r}, {str(DATA / "physionet2012_outcomes_a.txt")!r})
print(len(records))
"""
FIT = """
import sys
from sfumato.synthesis import EHRSafe
result = EHRSafe(seed=0, **({"epochs": 1, "gan_steps": 5} if sys.argv[2] else {})).fit(records, out=sys.argv[1])
"""


def main() -> None:
    """Run the three, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="learn for a moment, 2,000 stays")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    count = COUNT // 50 if options.quick else COUNT
    with tempfile.TemporaryDirectory() as folder:
        run, made = Path(folder) / "run", Path(folder) / "made"
        reading, read_gib = process("-c", READ)
        learning, fit_gib = process("-c", READ + FIT, run, "quick" if options.quick else "")
        sample = ("-m", "sfumato", "ehr", "sample", "--model", run, "--count", count, "--to", made, "--seed", 0)
        sampling, sample_gib = process(*sample)
        stays, visits = (pq.read_metadata(made / f"{name}.parquet").num_rows for name in ("static", "visits"))
    if stays != count:
        raise SystemExit(f"{stays} stays were written, and {count} were asked for")
    print(f"{stays:,} stays with {visits:,} visits")
    rows = [
        shown("read 4,000 stays, a fresh process", reading, READ_S, "limit", "s", 1.0),
        shown("read and learn", learning / 60, FIT_MIN, "limit", "min", 1.0),
        shown(f"sample and write {count:,} stays", sampling / 60, SAMPLE_MIN, "limit", "min", 1.0),
        shown("sample and write, largest memory", sample_gib, GIB, "limit", "GiB", 1.0),
        shown("read, largest memory", read_gib, GIB, "limit", "GiB", None),
        shown("learn, largest memory", fit_gib, GIB, "limit", "GiB", None),
    ]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def process(*words: object) -> tuple[float, float]:
    """Seconds of a Python process, and the most memory that it held, in GiB."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        started = subprocess.Popen([sys.executable, *map(str, words)], stdout=output, stderr=output)
        _, status, used = os.wait4(started.pid, 0)
        seconds = time.perf_counter() - begun
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode:
            output.seek(0)
            raise SystemExit(output.read().decode(errors="replace"))
    return seconds, used.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
