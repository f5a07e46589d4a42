"""No damaged file ends in a traceback, fills the memory or takes forever: readers answer, or refuse in one line.

2,000 files, and 20,000 among the slow tests, from a fixed seed, in 1 GB of memory; SFUMATO_MUTATED_FILES sets how many
these are, SFUMATO_SEED another seed.
"""

import os
import random
import time
import traceback
import warnings
from pathlib import Path

import pytest
import readers  # noqa: F401  # registers those of runs
from memory import within_memory
from mutations import READERS, mutate

from sfumato._check import InputError
from slow import slow_but

FILES = int(os.environ.get("SFUMATO_MUTATED_FILES", "20000"))
SEED = os.environ.get("SFUMATO_SEED", "0")
_SLOWEST = 5.0  # seconds of one file


@pytest.mark.parametrize("files", slow_but([2_000, FILES], 2_000))
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path: Path, name: str, files: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    reader, rng = READERS[name], random.Random(f"{SEED} {name}")
    paths = reader.make(tmp_path)
    whole = {path: path.read_bytes() for path in paths}
    reader.read(tmp_path)
    for path, content in whole.items():
        path.write_bytes(content)
    refused = 0
    with within_memory(name):
        for number in range(files // len(READERS) + 1):
            path = rng.choice(paths)
            damaged = mutate(whole[path], rng)
            path.write_bytes(damaged)
            started = time.monotonic()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    reader.read(tmp_path)
            except InputError as refusal:
                refused += 1
                said = str(refusal)
            except Exception:
                kept = tmp_path / f"found-{number}"
                kept.write_bytes(damaged)
                pytest.fail(f"{path.name}, damaged as in {kept}:\n{traceback.format_exc()}")
            else:
                said = ""
            assert "\n" not in said, (number, said)
            assert len(said) < 2000, (number, said[:300])
            assert time.monotonic() - started < _SLOWEST, (number, damaged[:300])
            path.write_bytes(whole[path])
    assert refused > files // len(READERS) // 10  # the damages are damages
