"""Merging ledgers: a run that was copied, or resumed in two places, becomes one in which each release counts once.

Guarantees that a release that stands in several of the ledgers counts exactly once, that every other release counts,
and that nothing is guessed. What makes two entries one release is their hash, which covers everything before them and
the identity of their writer. Entries of an anonymous writer have no such claim: two independent runs of one plan write
equal lines. Where ledgers share anonymous entries, the caller has to say which it is. The derivation is in
docs/how-to/ledger.md.

>>> import tempfile, pathlib
>>> from sfumato.accounting import Gaussian, Ledger
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> with Ledger.open(folder / "a.jsonl", identity="5e1c") as ledger:
...     ledger.append(Gaussian(2.0))
>>> copied = (folder / "b.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
>>> for name, writer in (("a.jsonl", "77aa"), ("b.jsonl", "c04d")):
...     with Ledger.open(folder / name, identity=writer) as ledger:
...         ledger.append(Gaussian(3.0))
>>> merge([folder / "a.jsonl", folder / "b.jsonl"], folder / "all.jsonl").event() == Gaussian(2.0) + Gaussian(3.0) * 2
True
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.accounting.ledger import chain
from sfumato.accounting.ledger.budget import Budget
from sfumato.accounting.ledger.totals import Totals

_Key = tuple[bytes, int, int]


@dataclass
class _Source:
    """One ledger to merge.

    Attributes:
        path: the file.
        totals: what it adds up to.
        releases: of each release its id, which of equal ids in this file it is, and whether its writer is anonymous.
        lines: hashes of all entries as they stand.
    """

    path: Path
    totals: Totals = field(default_factory=Totals)
    releases: list[tuple[bytes, int, bool]] = field(default_factory=list)
    lines: set[bytes] = field(default_factory=set)

    def ids(self, *, anonymous: bool) -> set[bytes]:
        return {id for id, _, is_anonymous in self.releases if is_anonymous is anonymous}

    @property
    def name(self) -> str:
        """Enough of the path to know the file by; the rest of it is nobody's business."""
        return "/".join(self.path.parts[-2:]).lstrip("/")


def merge(
    paths: Sequence[Path | str],
    out: Path | str,
    *,
    same_run: bool = False,
    unrelated: bool = False,
    budget: Budget | None = None,
) -> Totals:
    """Merge ledgers of the same records into a new one in which each release counts once.

    The new file begins with the first ledger as it is, byte for byte. Releases of the others that are not in it follow,
    chained anew; their field "origin" names the file, its head and the hash that the entry had there. A ledger that is
    the beginning of another adds nothing, so equal ledgers merge to themselves.

    Args:
        paths: two ledgers or more; they are not changed.
        out: the new file, which must not exist.
        same_run: equal entries of an anonymous writer are one release, because one file is a copy of the other.
        unrelated: ledgers without a common release belong together all the same, as phases of work on the same
            records. Equal entries of an anonymous writer are then different releases, unless `same_run` is set too.
        budget: the budget of the new ledger; the tightest of the old ones without it.

    Returns:
        what the new ledger adds up to.

    Raises:
        InputError: a ledger is damaged, `out` exists, the ledgers have nothing in common, or it cannot be told
            whether equal entries are one release.
    """
    listed = isinstance(paths, Iterable) and not isinstance(paths, str | Path)
    if not listed or not all(isinstance(path, str | Path) for path in [*paths, out]):
        raise InputError("ledgers to merge must be a list of paths, and out a path")
    files = _different([Path(path) for path in paths])
    out = Path(out)
    if not files:
        raise InputError("no ledger to merge; give the paths of at least two")
    if out.exists():
        raise InputError(f"{out} exists already; choose another path for the merged ledger")
    sources = [_read(path) for path in files]
    _refuse_doubt(sources, same_run=same_run, unrelated=unrelated)
    keys = [_keys(source, i, apart=unrelated and not same_run) for i, source in enumerate(sources)]
    if not unrelated:
        _refuse_strangers(sources, keys)
    kept = _without_beginnings(sources, keys)
    in_force = budget or _tightest([source for source in sources if source.totals.budget])
    write_atomic(out, lambda temporary: _write(temporary, [(sources[i], keys[i]) for i in kept], in_force))
    totals = Totals()
    for entry, _ in chain.entries(out):
        totals.record(entry)
    return totals


def _different(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not any(path.exists() and other.exists() and path.samefile(other) for other in found):
            found.append(path)
    return found


def _read(path: Path) -> _Source:
    source, seen = _Source(path), Counter[bytes]()
    for entry, _ in chain.entries(path):
        try:
            source.totals.record(entry)
        except InputError as error:
            raise InputError(f"{path}, {error}") from None
        source.lines.add(bytes.fromhex(entry["hash"]))
        if "event" in entry:
            id = _id(path, entry)
            source.releases.append((id, seen[id], source.totals.run is None))
            seen[id] += 1
    return source


def _id(path: Path, entry: dict[str, Any]) -> bytes:
    """What a release is known by: the hash that it had where it was first recorded."""
    try:
        return bytes.fromhex(entry.get("origin", entry)["hash"])
    except (KeyError, TypeError, ValueError):
        origin = entry["origin"]
        raise InputError(
            f"{path}, line {entry['index'] + 1}: origin {origin!r:.80} is none of a merged ledger"
        ) from None


def _keys(source: _Source, number: int, *, apart: bool) -> list[_Key]:
    """What tells each release of a ledger from all others; `apart` keeps anonymous ones in different files apart."""
    return [(id, occurrence, number if anonymous and apart else -1) for id, occurrence, anonymous in source.releases]


def _refuse_doubt(sources: list[_Source], *, same_run: bool, unrelated: bool) -> None:
    if same_run or unrelated:
        return
    seen: dict[bytes, _Source] = {}
    for source in sources:
        for id in source.ids(anonymous=True):
            if id in seen:
                raise InputError(
                    f"{seen[id].path} and {source.path} share entries of a writer without identity, which may be one "
                    "release or two: same_run=True if one file is a copy of the other, unrelated=True to count both"
                )
        seen |= dict.fromkeys(source.ids(anonymous=True), source)


def _refuse_strangers(sources: list[_Source], keys: list[list[_Key]]) -> None:
    filled = [(source, set(own)) for source, own in zip(sources, keys, strict=True) if own]
    if not filled:
        return
    reached, rest = set(filled[0][1]), filled[1:]
    while near := [other for other in rest if not reached.isdisjoint(other[1])]:
        reached = reached.union(*(own for _, own in near))
        rest = [other for other in rest if other not in near]
    if rest:
        raise InputError(
            f"{filled[0][0].path} and {rest[0][0].path} have no release in common; if they are phases of work on the "
            "same records, unrelated=True adds them up"
        )


def _without_beginnings(sources: list[_Source], keys: list[list[_Key]]) -> list[int]:
    """The ledgers that are not the beginning of another one, in order; of equal ones the first."""
    kept: list[int] = []
    for i, source in enumerate(sources):
        head = bytes.fromhex(source.totals.head)
        others = [j for j in range(len(sources)) if j != i and set(keys[i]) <= set(keys[j])]
        longer = [j for j in others if head in sources[j].lines and sources[j].totals.head != source.totals.head]
        equal = [j for j in others if sources[j].totals.head == source.totals.head and j < i]
        if not longer and not equal and source.totals.entries:
            kept.append(i)
    return kept or [0]


def _tightest(sources: list[_Source]) -> Budget | None:
    """A budget that keeps all of these."""
    found: Budget | None = None
    for source in sources:
        budget = source.totals.budget
        assert budget is not None
        if found is None:
            found = budget
        elif (found.adjacency, found.currency) != (budget.adjacency, budget.currency):
            raise InputError(
                f"the budgets {found.describe()} and {budget.describe()} (of {source.path}) cannot be compared; "
                "give budget= for the merged ledger"
            )
        elif found.rho is not None and budget.rho is not None:
            found = Budget(rho=min(found.rho, budget.rho), adjacency=found.adjacency)
        else:
            orders = {each.order for each in (found, budget) if not each.fixed_plan}
            found = Budget(
                epsilon=min(found.limit, budget.limit),
                delta=min(found.delta or 0.0, budget.delta or 0.0),
                adjacency=found.adjacency,
                fixed_plan=found.fixed_plan and budget.fixed_plan,
                order=orders.pop() if len(orders) == 1 else None,
            )
    return found


def _write(path: Path, sources: list[tuple[_Source, list[_Key]]], budget: Budget | None) -> None:
    (first, known), *others = sources
    written = set(known)
    index, head, run = first.totals.entries, first.totals.head, first.totals.run
    with open(path, "wb") as file:

        def put(fields: dict[str, Any]) -> None:
            nonlocal index, head
            entry = chain.seal(fields, index=index, previous=head)
            file.write(chain.line(entry))
            index, head = index + 1, entry["hash"]

        for entry, _ in chain.entries(first.path):
            file.write(chain.line(entry))
        for source, keys in others:
            own, place = None, iter(keys)
            for entry, _ in chain.entries(source.path):
                own = entry.get("run", own)
                if "event" not in entry:
                    continue
                key = next(place)
                if key in written:
                    continue
                written.add(key)
                origin = {"file": source.name, "head": source.totals.head, "hash": entry["hash"]}
                fields = {name: value for name, value in entry.items() if name not in ("hash", "run")}
                marked = {"run": own} if own != run else {}
                put({"origin": origin, **fields, **marked})
                run = own
        if budget != first.totals.budget and budget is not None:
            put({"kind": "budget", "budget": budget.to_json(), "reason": "ledgers were merged"})
