"""What a change of structure must leave as it is: seeded runs of every algorithm, and bounds of many events.

    python benchmarks/frozen.py --write before.json     # in a checkout before the change
    python benchmarks/frozen.py --against before.json   # after it; ends with 1 where anything differs

Of a run: digests of the model, statement, plan and ledger, and of its error where it has one. Of an event: ε, both
ends, by every method and adjacency. Digests hold on one machine and one version of torch only.
"""

import argparse
import hashlib
import itertools
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from contract.specimens import SPECIMENS, fit
from sfumato import accounting as acc
from sfumato._check import InputError

FILES = ("model.safetensors", "statement.json", "plan.json", "ledger.jsonl")
CLIPPINGS = [{"clipping": clipping} for clipping in ("adaptive", "per_layer", "automatic")]
NOISES = [{"noise": noise} for noise in ("banded", "tree", "blt", "bisr")]
SAMPLINGS = [{"cohort": cohort} for cohort in ("fixed_size", "shuffled", "cyclic_poisson", "min_separation")]
EVENTS = {
    "gaussian": acc.Gaussian(2.0) * 10,
    "poisson": acc.Gaussian(1.0).poisson(0.01) * 1000,
    "fixed size": acc.Gaussian(1.5).without_replacement(10, 1000) * 100,
    "truncated": acc.Gaussian(1.0).truncated_poisson(0.01, max_batch=20, population=1000) * 100,
    "laplace": acc.Laplace(5.0) * 20,
    "laplace, sampled": acc.Laplace(2.0).poisson(0.05) * 50,
    "discrete laplace": acc.DiscreteLaplace(5.0) * 10,
    "discrete gaussian": acc.DiscreteGaussian(4.0) * 10,
    "exponential": acc.ExponentialMechanism(0.2) * 10,
    "randomised response": acc.RandomizedResponse(0.5, 4) * 2,
    "claims": acc.PureDP(0.5) + acc.ApproximateDP(0.1, 1e-8) + acc.ZCDP(0.01),
    "joint": acc.joint(acc.Gaussian(2.0), acc.Gaussian(3.0)).poisson(0.02) * 100,
    "composition": acc.Gaussian(1.0).poisson(0.01) * 100 + acc.Laplace(10.0) * 5 + acc.Gaussian(8.0),
    "tree": acc.TreeAggregation(noise_multiplier=8.0, steps=64),
    "cyclic": acc.cyclic_poisson(noise_multiplier=4.0, steps=200, parts=8, sampling_rate=0.08),
    "votes": acc.NoisyVote(20.0) * 50,
}


def runs() -> Iterator[tuple[str, dict[str, str]]]:
    """Of each seeded run, what it left."""
    ways: list[dict[str, str]] = [{}, *CLIPPINGS, *NOISES, *SAMPLINGS]
    with tempfile.TemporaryDirectory() as folder:
        for name, way in itertools.product(SPECIMENS, ways):
            out = Path(folder, f"{name} {' '.join(way.values())}")
            try:
                fit(name, out, seed=7, **way)
                found = {file: digest(_content(out / file)) for file in FILES if (out / file).exists()}
            except (InputError, TypeError) as error:
                found = {"refused": digest(str(error).encode())}
            yield f"run {out.name}".strip(), found


def _content(file: Path) -> bytes:
    """What is compared of a file: of a ledger, all but the hash of plan.json, which is compared by itself."""
    if file.name != "ledger.jsonl":
        return file.read_bytes()
    *entries, last = [json.loads(line) for line in file.read_text().splitlines()]
    last["statement"]["files"].pop("plan.json")
    return json.dumps([*entries, {name: value for name, value in last.items() if name != "hash"}]).encode()


def events() -> Iterator[tuple[str, Any]]:
    """ε of each event at δ = 10⁻⁶, both ends."""
    for (name, event), adjacency, method in itertools.product(
        EVENTS.items(), ("add_remove", "replace", "zero_out"), ("auto", "pld", "rdp", "zcdp")
    ):
        yield f"event {name}, {adjacency}, {method}", _interval(event, adjacency, method)


def _interval(event: acc.Event, adjacency: Any, method: Any) -> list[float] | str:
    try:
        return list(acc.guarantee(event, adjacency=adjacency, method=method).epsilon_interval(delta=1e-6))
    except (InputError, ValueError) as error:
        return f"{type(error).__name__}: {digest(str(error).encode())}"


def digest(content: bytes) -> str:
    """Short, for a table."""
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", type=Path)
    group.add_argument("--against", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    now = json.loads(json.dumps(dict([*events(), *runs()])))
    if options.write:
        options.write.write_text(json.dumps(now, indent=1) + "\n")
        print(f"{len(now)} kept in {options.write}")
        return
    before = json.loads(options.against.read_text())
    differ = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    print("".join(f"{name}: {before.get(name)} -> {now.get(name)}\n" for name in differ), end="")
    print(f"{len(before)} before, {len(now)} now, {len(differ)} differ")
    raise SystemExit(bool(differ))


if __name__ == "__main__":
    main()
