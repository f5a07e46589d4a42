"""A private run on frozen features, from pictures to figures: pack, cache, rounds, all pairs of unseen pictures.

    python benchmarks/prefix_pipeline.py [--quick] [--json FILE] [--trainable SPEC]

The commands as a user gives them, one process each, on placeholder faces of 112×112 (JPEG): 1,000 people with 4
pictures to train on and 500 others with 4 to test on. SqueezeNet, of which the embedding is trained unless another
`--trainable` is given; 512 people a round. Neither the weights nor the faces change the time, so both are placeholders.
Next to limits: 20 minutes on two cores, and 2 GB, which is the largest that any of the processes was: pages of mapped
files count in it, although the system may take them back at any time.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from rows import shown

LIMIT_MINUTES, LIMIT_GIB = 20.0, 2e9 / 2**30
SIDE, EACH = 112, 4


def draw(folder: Path, people: int, seed: int) -> Path:
    """`folder/p00000/0.jpg` …: a face is a few soft spots, a picture of it is those with noise."""
    rng = np.random.default_rng(seed)
    for person in range(people):
        small = Image.fromarray(rng.integers(0, 256, (7, 7, 3), np.uint8))
        face = np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float64)
        own = folder / f"p{person:05}"
        own.mkdir(parents=True)
        for number in range(EACH):
            noisy = (face + rng.normal(0, 20, face.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(own / f"{number}.jpg")
    return folder


def command(folder: Path, *words: object) -> float:
    """Seconds of a command."""
    begun = time.perf_counter()
    given = [sys.executable, "-m", "sfumato", *map(str, words)]
    done = subprocess.run(given, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(given)}\n{done.stderr}")
    seconds = time.perf_counter() - begun
    print(f"  {' '.join(map(str, words[:2])):40}{seconds:10.1f} s", flush=True)
    return seconds


def main() -> None:
    """Run the commands, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the people and rounds")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--trainable", default="last")
    options = parser.parse_args()
    part = 10 if options.quick else 1
    rounds, clients = 200 // part, 64 // part
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder / "faces", 1000 // part, 0)
        draw(folder / "others", 500 // part, 1)
        seconds = sum(command(folder, "data", "pack", each, f"{each}.store") for each in ("faces", "others"))
        chosen = ("--model", "squeezenet", "--embedding-dim", 64, "--trainable", options.trainable)
        private = ("--epsilon", 8, "--rounds", rounds, "--clients-per-round", clients, "--users-per-client", 8)
        kept = ("--local-epochs", 1, "--prefix-cache", "cache", "--out", "run")
        seconds += command(
            folder, "fedemb", "--data", "faces.store", "--test", "others.store", *chosen, *private, *kept
        )
        tested = json.loads((folder / "run" / "evaluation.json").read_text())
        size = sum(file.stat().st_size for file in (folder / "cache").rglob("*") if file.is_file())
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    pictures = tested["images"]
    assert tested["genuine_pairs"] + tested["impostor_pairs"] == pictures * (pictures - 1) // 2
    print(f"  {pictures:,} unseen pictures in all pairs; a cache of {size / 2**20:.0f} MiB")
    title = f"pack, cache, {rounds} rounds, all pairs of {pictures:,}"
    rows = [
        shown(title, seconds / 60, LIMIT_MINUTES, "limit", "min", 1.0),
        shown(f"{title}: memory", most, LIMIT_GIB, "limit", "GiB", 1.0),
    ]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
