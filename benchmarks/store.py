"""A packed store: 10⁶ users opened, and cohorts gathered.

    python benchmarks/store.py [--quick] [--json FILE] [--users N]

Opened: each measurement is a fresh process that opens the data, reads one user, and is asked for its time (without
starting Python and importing) and for the memory that it added, next to one that reads the same file whole. Gathered:
the examples of a random cohort, next to the same from flat files that are mapped, one a column, as stores once were.
Both take turns; files are in the page cache for both. `ratio` = ours / other, of medians; `goal` is the largest ratio
that meets the goal.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rows import row

LIMIT_SECONDS = 2.0
LIMIT_BYTES_PER_USER = 100  # a Python list of names alone takes more

MEASURE = """
import sys, time
import numpy as np

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

path, how = sys.argv[1:]
if how == "ours":
    from sfumato.data.store.opened import open_store
else:
    import pyarrow as pa
before, start = resident(), time.perf_counter()
if how == "ours":
    users = open_store(path)
    inputs, labels = users.examples(len(users) // 2)
    name = users.user_ids[len(users) // 2]
else:  # everything into memory, the names as a list
    examples = pa.ipc.open_stream(open(f"{path}/examples.arrow", "rb").read()).read_all()
    names = pa.ipc.open_stream(open(f"{path}/users.arrow", "rb").read()).read_all()["name"].to_pylist()
    name = names[len(names) // 2]
print(time.perf_counter() - start, resident() - before, name)
"""


def measure(path: Path, how: str) -> tuple[float, float, str]:
    """Seconds, bytes, and the name that was read."""
    run = subprocess.run([sys.executable, "-c", MEASURE, str(path), how], capture_output=True, text=True, check=True)
    seconds, size, name = run.stdout.split()
    return float(seconds), float(size), name


def build(path: Path, users: int) -> None:
    """A store of users with two pictures of 8×8 each."""
    from sfumato.data import write_users

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (1024, 8, 8, 1), np.uint8)

    def people() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for user in range(users):
            first = user % 1023
            yield f"user-{user:08d}", images[first : first + 2], np.array([user % 10, user % 7])

    write_users(people(), path, (8, 8, 1), np.dtype(np.uint8), num_classes=10)


GATHER = """
import statistics, sys, time
import numpy as np
from sfumato.data import UserDataset, open_users

folder, cohort, rounds, seed = sys.argv[1], *map(int, sys.argv[2:])
ours, rng = open_users(f"{folder}/store"), np.random.default_rng(seed)
inputs, labels = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in ("inputs", "labels"))
old = UserDataset(inputs=inputs, labels=labels, offsets=ours.offsets, names=ours.names, num_classes=1)
seconds = [], []
for _ in range(rounds):
    chosen = np.sort(rng.choice(len(ours), cohort, replace=False))
    for which in rng.permutation(2):
        start = time.perf_counter()
        (ours, old)[which].examples_of(chosen)
        seconds[which].append(time.perf_counter() - start)
assert np.array_equal(ours.examples_of(chosen)[0], old.examples_of(chosen)[0])
print(*map(statistics.median, seconds))
"""


def gathered(
    folder: Path, shape: tuple[int, ...], each: int, users: int, cohort: int, rounds: int, processes: int
) -> list[float]:
    """Seconds to gather a cohort's examples: ours, and from flat files; medians of processes, as chance decides once a
    process where memory lies and how fast that is."""
    from sfumato.data import write_users

    rng, rows = np.random.default_rng(0), users * each
    flat = np.lib.format.open_memmap(folder / "inputs.npy", "w+", np.uint8, (rows, *shape))
    labels = np.lib.format.open_memmap(folder / "labels.npy", "w+", np.int64, (rows,))
    for user in range(users):
        flat[user * each : (user + 1) * each] = rng.integers(0, 256, (each, *shape), np.uint8)
    flat.flush()
    labels.flush()
    people = ((f"{u:06}", flat[u * each : (u + 1) * each], labels[u * each : (u + 1) * each]) for u in range(users))
    write_users(people, folder / "store", shape, np.dtype(np.uint8), num_classes=1)
    medians = []
    for seed in range(processes):
        command = [sys.executable, "-c", GATHER, str(folder), str(cohort), str(rounds), str(seed)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        medians.append([float(each) for each in output])
    return np.median(medians, axis=0).tolist()


def main() -> None:
    """Build the store in a temporary folder, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10⁵ users, three repetitions")
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    users, repetitions = (100_000, 3) if options.quick else (options.users, 7)
    rounds, most = (21, 100 << 20) if options.quick else (101, 1 << 30)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        start = time.perf_counter()
        build(path, users)
        print(f"wrote {users:,} users in {time.perf_counter() - start:.1f} s")
        runs: dict[str, list[tuple[float, float, str]]] = {"ours": [], "eager": []}
        for _ in range(repetitions):
            for how, results in runs.items():
                results.append(measure(path, how))
    cohorts = {}
    for shape, each in (((8, 8, 1), 2), ((28, 28, 1), 20), ((28, 28, 1), 200), ((112, 112, 3), 10)):
        people = min(most // (each * int(np.prod(shape))), 200_000)
        cohort = min(people // 4, 512)
        with tempfile.TemporaryDirectory() as folder:
            title = f"cohort of {cohort} of {people:,} users with {each} of {'×'.join(map(str, shape))}"
            cohorts[title] = gathered(Path(folder), shape, each, people, cohort, rounds, repetitions)
    if len({name for results in runs.values() for _, _, name in results}) != 1:
        raise SystemExit("the two readers disagree about a user's name")
    seconds = {how: statistics.median(r[0] for r in results) for how, results in runs.items()}
    size = {how: statistics.median(r[1] for r in results) / 2**20 for how, results in runs.items()}
    limit = users * LIMIT_BYTES_PER_USER / 2**20
    label = f"open a store of {users:,} users"
    rows = [
        row(f"{label}: time", seconds["ours"], LIMIT_SECONDS, "limit", "s", 1.0),
        row(f"{label}: time", seconds["ours"], seconds["eager"], "eager reading", "s", 1.0),
        row(f"{label}: memory", size["ours"], limit, "limit", "MiB", 1.0),
        row(f"{label}: memory", size["ours"], size["eager"], "eager reading", "MiB", 0.25),
        *(row(title, ours * 1e3, flat * 1e3, "flat files", "ms", 1.1) for title, (ours, flat) in cohorts.items()),
    ]
    for line in rows:
        print(
            f"{line['name']:<62} {line['ours']:>9.3f} {line['unit']:<4} {line['other_name']:<14} {line['other']:>9.3f}"
            f"  ratio {line['ratio']:.3f}  goal ≤ {line['goal']}  {'met' if line['met'] else 'MISSED'}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
