"""`sfumato dplc`: embeddings of private identities → directions of dense groups of them, under a guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from sfumato._check import InputError
from sfumato.cli.console import Answer, Table, bar, notify
from sfumato.cli.embeddings import EmbeddingTable, open_embeddings, refuse_another
from sfumato.cli.parse import CommonOptions
from sfumato.cli.results import dry_run, outcome
from sfumato.federated.clustering import (
    DPLC,
    cap_share,
    centres_of,
    principal_directions,
    public_directions,
    refuse_other_sizes,
    refuse_private,
    size_for,
)

_ROWS = 16_384  # of a table that are read at a time
_GOOD = 0.9  # cosine of a direction that is worth using
_NO_LENGTH = 1e-9  # cosine of a radius up to which the mean of a cap may have no length


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(DPLC, CommonOptions):
    """Release directions of dense groups of class centres (private local clustering, DPLC).

    A class centre is the normalised mean of an identity's embeddings. Public directions are candidates: the densest
    cap around one is chosen, and the sum of its centres is released with noise. Others can use the direction in
    training, as a negative. Each identity is covered.

    Attributes:
        embeddings: a Parquet file of the identities' embeddings, as sfumato embed writes: columns user and embedding.
        candidates: another such file, of public people.
        groups: k-means groups of the public people, whose directions are the candidates; 0 takes each person.
        dimensions: compare in so many principal directions of the public people, which needs less noise; none compares
            in all dimensions.
        column: the column of embeddings, in both files.
        out: folder of the run; it must be new or empty. Its model.safetensors holds the directions to use, as a tensor
            of that name; "unused" has those of groups below the threshold.
        resume: go on with the run in --out, with the same words otherwise.
        dry_run: say what a run would state and how large a group it needs, and release nothing.
    """

    embeddings: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="EMBEDDINGS")]
    candidates: Path
    groups: int = 16
    dimensions: int | None = None
    column: str = "embedding"
    out: Path | None = None
    resume: bool = False
    dry_run: bool = False


def dplc(options: ClusterOptions) -> Answer:
    """Release the directions."""
    if options.out is None and not options.dry_run:
        raise InputError("dplc needs a folder for its run: give --out FOLDER, or --dry-run")
    private, known = (open_embeddings(path, options.column) for path in (options.embeddings, options.candidates))
    made = ((options.embeddings, private.provenance), (options.candidates, known.provenance))
    if warning := refuse_another(*made, remedy="embed both with one model"):
        notify(warning)
    (centres, mine), (public, theirs) = _centres(private), _centres(known)
    if both := mine & theirs:
        notify(
            f"warning: {len(both):,} users have the same name in both files, as {min(both)!r:.80}; if they are the "
            "same people, leave them out of the candidates, which must be public"
        )
    refuse_other_sizes(centres, public)
    refuse_private(centres, public)  # k-means and principal directions would hide it
    candidates = public_directions(public, options.groups) if options.groups else public
    projection = None if options.dimensions is None else principal_directions(public, options.dimensions)
    wide = options.dimensions or centres.shape[1]
    if options.dry_run:
        return _dry_run(options, len(centres), wide)
    from sfumato.runs import RunFolder  # late: it loads torch

    already = options.resume and options.out is not None and RunFolder(options.out).has_ended()
    with bar("comparing") as progress:
        result = options.release(
            centres, candidates, projection=projection, out=options.out, resume=options.resume, progress=progress
        )
    assert result.folder is not None
    rows = [
        [str(number), f"{each.count:,.0f}", f"{each.cosine:.3f}", "used" if each.usable else "too few identities"]
        for number, each in enumerate(result.clusters, start=1)
    ]
    above: list[str | Table] = [Table(["group", "identities, noisy", "expected cosine", ""], rows)]
    if not len(result.directions):
        above.append(
            f"\nno group reached {options.threshold:,} identities, so there is no direction to use; the cost is spent. "
            "In the next run take a larger --radius, fewer --dimensions, or a lower --threshold"
        )
    usable = [each.usable for each in result.clusters]
    return outcome(
        result.folder, result.statement, already=already, above=above, clusters=len(usable), used=sum(usable)
    )


def _centres(table: EmbeddingTable) -> tuple[np.ndarray, set[str]]:
    """The class centres of a table, float32 [users, d], in the order in which users come first; and the users."""
    numbers: dict[str, int] = {}
    vectors, owners = [], []
    for about, block in table.blocks(_ROWS):
        vectors.append(block)
        users = about["user"].to_pylist()
        if None in users:  # they would be one identity, and none of them covered
            row = len(owners) + users.index(None)
            raise InputError(f"{table.source.title}: row {row} has no user; leave it out, or name the user")
        owners += [numbers.setdefault(str(user), len(numbers)) for user in users]
    return centres_of(np.concatenate(vectors), np.array(owners, np.int64)), set(numbers)


def _dry_run(options: ClusterOptions, identities: int, dimensions: int) -> Answer:
    """The plan, its statement, and whether it can release anything."""
    if options.threshold > identities:
        raise InputError(
            f"a threshold of {options.threshold:,} needs as many identities, got {identities:,}; lower it, or take "
            "more identities"
        )
    noise = None if options.as_printed else options.noise_multiplier(identities)
    lines, needed, share = occupancy(options.radius, options.threshold, dimensions, identities, noise, of="all")
    statement = options.statement(identities)
    return dry_run(
        options, statement, "no embeddings were compared", above=[*lines, ""], needed=needed, cap_share=share
    )


def occupancy(
    radius: float, threshold: int, dimensions: int, identities: int, noise: float | None, *, of: str, group: str = ""
) -> tuple[list[str], int | None, float]:
    """Whether a radius and a threshold can release anything.

    Args:
        radius: of a cap.
        threshold: identities from which on a direction is used.
        dimensions: that are compared.
        identities: that there are.
        noise: std on each coordinate of a sum; None for none.
        of: whose identities these are, for people.
        group: of the options that are named in advice: "sharing.".

    Returns:
        lines for people; how many identities a group needs for a good direction, None where no number is certain to be
        enough; the share of the sphere that a cap is.
    """
    share = cap_share(dimensions, radius) if dimensions > 1 else 0.5
    needed: int | None = None
    lines: list[str] = []
    if noise is not None:
        lines.append(f"noise on a sum: std {noise:.3g} in each of {dimensions} dimensions")
        resultant = math.cos(radius)
        if resultant > _NO_LENGTH:
            needed = max(threshold, math.ceil(size_for(_GOOD, resultant, dimensions, noise)))
            there = f"{needed / identities:.0%} of {of} {identities:,}"
            if needed > identities:
                there = f"more than {of} {identities:,}"
            lines.append(
                f"a group needs about {needed:,} identities for a direction with cosine {_GOOD}, at the largest spread "
                f"that the radius allows: {there}"
            )
        else:
            lines.append(
                f"in a cap of radius {radius:g} centres may cancel each other out, and no number of identities "
                "is certain to be enough: take a radius below π / 2"
            )
    lines.append(
        f"a cap of radius {radius:g} is {share:.2g} of the sphere in {dimensions} dimensions: that share of "
        "identities would be in it without any groups"
    )
    if needed is not None and needed > identities:
        lines.append(
            f"so every direction will be noisier than that: raise --{group}epsilon, or take fewer --{group}dimensions"
        )
    return lines, needed, share
