"""The trained synthesizer, and the records that it generates.

**Blocks.** New records block by block, so that as many as are asked for fit into memory.

The same seed gives the same records, and more of them begin with those of fewer as long as whole blocks are asked for.
Several threads make a block each; that changes nothing about the records.

**Conditions.** Conditions on the static columns of new records: a category, or a range of numbers.

A record that does not meet them is dropped before its visits are generated. So what is left follows the model's own
conditional distribution, and any set of conditions can be asked for; a generator that takes conditions would have to be
trained for conditions that are known in advance.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError, guess
from sfumato._random import RandomSource
from sfumato._torch import one_thread_each
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.models.weights import read_metadata, read_tensors
from sfumato.synthesis.decoder import EVEN, RecordDecoder, RowCalibration, RowsDrawn, VisitsDrawn, knots_of
from sfumato.synthesis.networks import Networks
from sfumato.synthesis.scales import Scales
from sfumato.synthesis.settings import EHRSafeSettings

BLOCK = 4_000
"""Patients that are generated side by side."""

Made = Callable[[int, int, torch.Generator], EHRDataset]
"""From the place of a block's first patient, how many there are in it, and what draws, to the records."""


def in_blocks(
    made: Made, count: int, *, seed: int | None, block: int, progress: Callable[[int, int], None] | None
) -> Iterator[EHRDataset]:
    """New records, block by block.

    Args:
        made: makes a block, in a thread of its own.
        count: of patients.
        seed: the same records again; None draws from the operating system.
        block: patients in a block; the last one may have fewer.
        progress: called with how many there are, and of how many.

    Raises:
        InputError: a number is out of range.
    """
    _check.whole(count=count, block=block)
    source = RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)
    return _blocks(made, count, source, block, progress)


def _blocks(
    made: Made, count: int, source: RandomSource, block: int, progress: Callable[[int, int], None] | None
) -> Iterator[EHRDataset]:
    def one(first: int) -> EHRDataset:
        generator = torch.Generator().manual_seed(source.seed64("ehr records", first // block))
        with torch.inference_mode():
            return made(first, min(block, count - first), generator)

    # A block that is done waits while others are made and the one before it is used: threads + 1 blocks at the most.
    threads, waiting = torch.get_num_threads(), deque[tuple[int, Future[EHRDataset]]]()
    with one_thread_each(), ThreadPoolExecutor(threads) as workers:
        try:
            for first in range(0, count, block):
                waiting.append((first, workers.submit(one, first)))
                if len(waiting) > threads:
                    yield _next(waiting, count, progress)
            while waiting:
                yield _next(waiting, count, progress)
        finally:
            workers.shutdown(cancel_futures=True)
    if progress is not None:
        progress(count, count)


def _next(
    waiting: deque[tuple[int, Future[EHRDataset]]], count: int, progress: Callable[[int, int], None] | None
) -> EHRDataset:
    first, made = waiting.popleft()
    if progress is not None:
        progress(first, count)
    return made.result()


_SHOWN = 10  # categories in a message
_RAREST = 1_000  # a record is drawn at most so many times to meet conditions
_FEWEST = 256  # records that are drawn at once

T = TypeVar("T")


class Conditions:
    """Conditions on the static columns, all of which a record has to meet.

    Args:
        schema: of the records.
        conditions: from a column's name to a category, or to (lowest, highest) of a numeric column.

    Raises:
        InputError: there is no such column or category, or a range is none.
    """

    def __init__(self, schema: Schema, conditions: Mapping[str, Any]) -> None:
        self.words = ", ".join(f"{name}={value}" for name, value in conditions.items())
        self._codes: list[tuple[int, int]] = []
        self._ranges: list[tuple[int, float, float]] = []
        numeric = [column.name for column in schema.static_numeric]
        categorical = {column.name: place for place, column in enumerate(schema.static_categorical)}
        for name, value in conditions.items():
            if name in categorical:
                column = schema.static_categorical[categorical[name]]
                code = column.code(str(value))
                if code is None:
                    known = ", ".join(column.categories[:_SHOWN])
                    more = f" … ({len(column.categories)} in all)" if len(column.categories) > _SHOWN else ""
                    hint = guess(value, column.categories)
                    raise InputError(f"condition {name} must be one of {known}{more}, got {value}{hint}")
                self._codes.append((categorical[name], code))
            elif name in numeric:
                self._ranges.append((numeric.index(name), *_range(name, value)))
            else:
                known = ", ".join([*categorical, *numeric]) or "none"
                hint = guess(name, [*categorical, *numeric])
                raise InputError(f"conditions must name static columns ({known}), got {name}{hint}")

    def met(self, numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Which records meet all of them.

        Args:
            numbers: float64 [n, numeric static columns], NaN for missing, which meets nothing.
            codes: int [n, categorical static columns].

        Returns:
            bool [n].
        """
        found = np.ones(len(codes), bool)
        for place, code in self._codes:
            found &= codes[:, place] == code
        for place, low, high in self._ranges:
            found &= (numbers[:, place] >= low) & (numbers[:, place] <= high)
        return found

    def draw_until_met(
        self, count: int, draw: Callable[[int], tuple[T, np.ndarray, np.ndarray]]
    ) -> list[tuple[T, np.ndarray]]:
        """Draw until enough records meet the conditions.

        Args:
            count: of records.
            draw: from how many to draw to what was drawn, and its static numbers and codes, as for `met`.

        Returns:
            What was drawn each time, and the places in it of those that meet the conditions, int64; `count` in all.

        Raises:
            InputError: next to none meets them.
        """
        found: list[tuple[T, np.ndarray]] = []
        tried = met = 0
        while met < count:
            drawn, numbers, codes = draw(max(count, _FEWEST))
            places = np.flatnonzero(self.met(numbers, codes))[: count - met]
            found.append((drawn, places))
            tried, met = tried + len(codes), met + len(places)
            if met < count and tried > _RAREST * (count + 1) and met * _RAREST < tried:
                raise InputError(
                    f"{met} of {tried:,} generated records meet {self.words}: too few to draw {count:,} of them; "
                    "ask for something more common, or drop a condition"
                )
        return found


def _range(name: str, value: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not low <= high:
        raise InputError(f"condition {name} must be a range (lowest, highest), got {value}")
    return low, high


_PASSES = 12  # of the calibration
_STATIC_PASSES, _STATIC_PATIENTS = 5, 5  # of static columns alone: little is drawn, so more patients
_STRIDE = 0.3  # of shifts that move what follows; with 1 they swing


@dataclass(frozen=True, eq=False)
class Synthesizer:
    """Generates records.

    Attributes:
        settings: of the plan.
        scales: of the records that were learned from, with their schema.
        networks: that learned.
        decoder: which draws by them.
    """

    settings: EHRSafeSettings
    scales: Scales
    networks: Networks
    decoder: RecordDecoder

    @classmethod
    def calibrated(
        cls,
        settings: EHRSafeSettings,
        scales: Scales,
        networks: Networks,
        source: RandomSource,
        progress: Callable[[int, int], None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> Self | None:
        """From networks that have learned; None where it was stopped.

        Args:
            settings, scales, networks: of the plan and the records.
            source: of what is generated to calibrate on.
            progress: called with how much is done, and of how much.
            stopped: is asked between passes whether to stop.
        """
        decoder = RecordDecoder(
            codec=networks.codec,
            static=networks.static,
            temporal=networks.temporal,
            scales=scales,
            masks=settings.masks,
            static_calibration=RowCalibration.none(networks.codec.static_columns, networks.static.total),
            calibration=RowCalibration.none(len(scales.rates), networks.temporal.total),
            gap_knots=None,
        )
        decoder = _settled(decoder, networks, source, settings.calibrated_on)
        best, least = decoder, float("inf")
        for turn in range(_PASSES + 1):
            progress(turn, _PASSES + 1)
            if stopped():
                return None
            generator = torch.Generator().manual_seed(source.seed64("ehr calibration", turn))
            last = turn == _PASSES
            tried = best if last else decoder
            visits = _trial(tried, networks, generator, settings.calibrated_on * (3 if last else 1))
            improved = _improved(tried, visits)
            if last:  # of what was the best, and only what moves nothing
                maps = replace(best.calibration, knots=improved.calibration.knots)
                decoder = replace(best, calibration=maps)
                break
            if (error := _error(tried, visits)) < least:
                best, least = tried, error
            decoder = improved
        progress(_PASSES + 1, _PASSES + 1)
        return cls(settings, scales, networks, decoder)

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self.scales.schema

    def sample(
        self,
        count: int,
        *,
        conditions: Mapping[str, Any] | None = None,
        seed: int | None = None,
        block: int = BLOCK,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[EHRDataset]:
        """New records, block by block.

        Args:
            count: of patients.
            conditions: on static columns, the outcome among them: a category, or (lowest, highest) of a number.
            seed: the same records again; None draws from the operating system.
            block: patients in a block; the last one may have fewer.
            progress: called with how many there are, and of how many.

        Raises:
            InputError: a condition names no column or category, or next to no record meets it.
        """
        wanted = Conditions(self.scales.schema, conditions or {})

        def made(first: int, size: int, generator: torch.Generator) -> EHRDataset:
            latent, statics = self._statics(size, wanted, generator)
            return self._records(latent, statics, generator, first)

        return in_blocks(made, count, seed=seed, block=block, progress=progress)

    def _statics(self, count: int, conditions: Conditions, generator: torch.Generator) -> tuple[Tensor, RowsDrawn]:
        """Latent vectors and static columns that meet the conditions."""

        def draw(size: int) -> tuple[tuple[Tensor, RowsDrawn], np.ndarray, np.ndarray]:
            latent = self.networks.drawn(size, generator)
            statics = self.decoder.statics(latent, generator)
            return (latent, statics), self._columns_of(self.decoder.static_values(statics)), statics.codes.numpy()

        found = [(*drawn, torch.from_numpy(places)) for drawn, places in conditions.draw_until_met(count, draw)]
        return (
            torch.cat([latent[places] for latent, _, places in found]),
            RowsDrawn.concatenated([statics.at(places) for _, statics, places in found]),
        )

    def _columns_of(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the static columns, without what was added to them."""
        return values[:, : len(self.scales.schema.static_numeric)]

    def _records(self, latent: Tensor, statics: RowsDrawn, generator: torch.Generator, first: int) -> EHRDataset:
        values = self.decoder.static_values(statics)
        visits = self.decoder.visits(latent, statics, values, generator)
        return EHRDataset(
            schema=self.scales.schema,
            ids=tuple(f"synthetic-{first + place + 1:06}" for place in range(len(latent))),
            static_numbers=self._columns_of(values),
            static_codes=statics.codes.numpy(),
            offsets=np.concatenate([[0], np.cumsum(visits.lengths)]),
            times=visits.times,
            numbers=self.decoder.values(visits.rows),
            codes=visits.rows.codes.numpy(),
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts of a file that holds all of it."""
        scales, plain = self.scales.state()
        tensors = {
            **{f"network.{name}": value for name, value in self.networks.state().items()},
            **{f"scale.{name}": value for name, value in scales.items()},
            **{f"static calibration.{name}": part for name, part in self.decoder.static_calibration.state().items()},
            **{f"calibration.{name}": part for name, part in self.decoder.calibration.state().items()},
        }
        if self.decoder.gap_knots is not None:
            tensors["gap.knots"] = self.decoder.gap_knots
        return tensors, {"settings": self.settings.to_json(), "schema": self.scales.schema.to_yaml(), "scales": plain}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """The synthesizer of a `state`."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        fields = {name: value for name, value in facts["settings"].items() if name != "plan"}
        settings, schema = EHRSafeSettings(**fields), Schema.from_yaml(facts["schema"])
        networks = Networks(settings, schema)
        networks.load(parts["network"])
        scales = Scales.of(schema, parts["scale"], dict(facts["scales"]))
        decoder = RecordDecoder(
            codec=networks.codec,
            static=networks.static,
            temporal=networks.temporal,
            scales=scales,
            masks=settings.masks,
            static_calibration=RowCalibration.of(parts["static calibration"]),
            calibration=RowCalibration.of(parts["calibration"]),
            gap_knots=parts["gap"]["knots"] if "gap" in parts else None,
        )
        return cls(settings, scales, networks, decoder)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The synthesizer of a run that has ended.

        Args:
            path: the run's folder, or the `model.safetensors` in it.

        Raises:
            InputError: there is none, or it is of another kind.
        """
        file = Path(path) / "model.safetensors" if Path(path).is_dir() else Path(path)
        facts = read_metadata(file)
        if not {"settings", "schema", "scales"} <= facts.keys():
            raise InputError(f"{file} holds no synthesizer; take the folder of a run of EHR-Safe that has ended")
        return cls.of(read_tensors(file), facts)


def _settled(decoder: RecordDecoder, networks: Networks, source: RandomSource, count: int) -> RecordDecoder:
    """The decoder with static columns calibrated; all else is generated from them, so they come first."""
    for turn in range(_STATIC_PASSES):
        generator = torch.Generator().manual_seed(source.seed64("ehr static calibration", turn))
        with torch.inference_mode():
            rows = decoder.statics(networks.drawn(count * _STATIC_PATIENTS, generator), generator)
        scales = decoder.scales
        improved = decoder.static_calibration.improved(
            raw=rows.raw if scales.stochastic else None,
            observed=rows.observed,
            codes=rows.codes,
            sizes=decoder.static.sizes,
            rates=scales.static_rates if decoder.masks else np.ones_like(scales.static_rates),
            shares=scales.static_shares,
            stride=1.0,
        )
        decoder = replace(decoder, static_calibration=improved)
    return decoder


def _trial(decoder: RecordDecoder, networks: Networks, generator: torch.Generator, count: int) -> VisitsDrawn:
    """Records to calibrate on."""
    with torch.inference_mode():
        latent = networks.drawn(count, generator)
        statics = decoder.statics(latent, generator)
        return decoder.visits(latent, statics, decoder.static_values(statics), generator)


def _error(decoder: RecordDecoder, visits: VisitsDrawn) -> float:
    """How far shares of what is observed, and the mean number of visits, are from those of real records."""
    rates = visits.rows.observed.double().mean(0).numpy()
    wrong = float(np.abs(rates - decoder.scales.rates).max()) if decoder.masks else 0.0
    return wrong + abs(float(visits.lengths.mean()) / decoder.scales.visits - 1.0)


def _improved(decoder: RecordDecoder, visits: VisitsDrawn) -> RecordDecoder:
    """A decoder whose shares among visits are nearer to those in its scales."""
    scales = decoder.scales
    calibration = decoder.calibration.improved(
        raw=visits.rows.raw if scales.stochastic else None,
        observed=visits.rows.observed,
        codes=visits.rows.codes,
        sizes=decoder.temporal.sizes,
        rates=scales.rates if decoder.masks else np.ones_like(scales.rates),
        shares=scales.shares,
        stride=_STRIDE,
    )
    if scales.summed:  # counts are drawn first and kept, so shifts would change nothing but when they are reached
        calibration = replace(calibration, masks=decoder.calibration.masks)
    gaps = decoder.gap_knots
    if scales.stochastic:
        gaps = torch.lerp(EVEN if gaps is None else gaps, knots_of(visits.raw_gaps), _STRIDE)
    return replace(decoder, calibration=calibration, gap_knots=gaps)
