"""A model that has learned, and the records that it generates.

Records come in blocks, so that as many as are asked for fit into memory. The same seed gives the same records, and more
of them begin with those of fewer as long as whole blocks are asked for.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.models.weights import read_metadata, read_tensors
from sfumato.synthesis.blocks import BLOCK, in_blocks
from sfumato.synthesis.ehr_safe.calibration import EVEN, RowCalibration, knots_of
from sfumato.synthesis.ehr_safe.given import Given
from sfumato.synthesis.ehr_safe.networks import Networks
from sfumato.synthesis.ehr_safe.scales import Scales
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings
from sfumato.synthesis.ehr_safe.teller import RowsDrawn, Teller, VisitsDrawn

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
        teller: which draws by them.
    """

    settings: EHRSafeSettings
    scales: Scales
    networks: Networks
    teller: Teller

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
            progress: is told how much is done, and of how much.
            stopped: is asked between passes whether to stop.
        """
        teller = Teller(
            codec=networks.codec,
            static=networks.static,
            temporal=networks.temporal,
            scales=scales,
            masks=settings.masks,
            static_calibration=RowCalibration.none(networks.codec.static_columns, networks.static.total),
            calibration=RowCalibration.none(len(scales.rates), networks.temporal.total),
            gap_knots=None,
        )
        teller = _settled(teller, networks, source, settings.calibrated_on)
        best, least = teller, float("inf")
        for turn in range(_PASSES + 1):
            progress(turn, _PASSES + 1)
            if stopped():
                return None
            generator = torch.Generator().manual_seed(source.seed64("ehr calibration", turn))
            last = turn == _PASSES
            tried = best if last else teller
            visits = _trial(tried, networks, generator, settings.calibrated_on * (3 if last else 1))
            improved = _improved(tried, visits)
            if last:  # of what was the best, and only what moves nothing
                maps = replace(best.calibration, knots=improved.calibration.knots)
                teller = replace(best, calibration=maps)
                break
            if (error := _error(tried, visits)) < least:
                best, least = tried, error
            teller = improved
        progress(_PASSES + 1, _PASSES + 1)
        return cls(settings, scales, networks, teller)

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self.scales.schema

    def sample(
        self,
        count: int,
        *,
        given: Mapping[str, Any] | None = None,
        seed: int | None = None,
        block: int = BLOCK,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[EHRDataset]:
        """New records, block by block.

        Args:
            count: of patients.
            given: conditions on static columns, the outcome among them: a category, or (lowest, highest) of a number.
            seed: the same records again; None draws from the operating system.
            block: patients in a block, the last one apart.
            progress: is told how many there are, and of how many.

        Raises:
            InputError: a condition names no column or category, or next to no record meets it.
        """
        conditions = Given(self.scales.schema, given or {})

        def made(first: int, size: int, generator: torch.Generator) -> EHRDataset:
            latent, statics = self._statics(size, conditions, generator)
            return self._records(latent, statics, generator, first)

        return in_blocks(made, count, seed=seed, block=block, progress=progress)

    def _statics(self, count: int, given: Given, generator: torch.Generator) -> tuple[Tensor, RowsDrawn]:
        """Latent vectors and static columns that meet the conditions."""

        def draw(size: int) -> tuple[tuple[Tensor, RowsDrawn], np.ndarray, np.ndarray]:
            latent = self.networks.drawn(size, generator)
            statics = self.teller.statics(latent, generator)
            return (latent, statics), self._columns_of(self.teller.static_values(statics)), statics.codes.numpy()

        found = [(*drawn, torch.from_numpy(places)) for drawn, places in given.kept(count, draw)]
        return (
            torch.cat([latent[places] for latent, _, places in found]),
            RowsDrawn.together([statics.at(places) for _, statics, places in found]),
        )

    def _columns_of(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the static columns, without what was added to them."""
        return values[:, : len(self.scales.schema.static_numeric)]

    def _records(self, latent: Tensor, statics: RowsDrawn, generator: torch.Generator, first: int) -> EHRDataset:
        values = self.teller.static_values(statics)
        visits = self.teller.visits(latent, statics, values, generator)
        return EHRDataset(
            schema=self.scales.schema,
            ids=tuple(f"synthetic-{first + place + 1:06}" for place in range(len(latent))),
            static_numbers=self._columns_of(values),
            static_codes=statics.codes.numpy(),
            offsets=np.concatenate([[0], np.cumsum(visits.lengths)]),
            times=visits.times,
            numbers=self.teller.values(visits.rows),
            codes=visits.rows.codes.numpy(),
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts of a file that holds all of it."""
        scales, plain = self.scales.state()
        tensors = {
            **{f"network.{name}": value for name, value in self.networks.state().items()},
            **{f"scale.{name}": value for name, value in scales.items()},
            **{f"static calibration.{name}": part for name, part in self.teller.static_calibration.state().items()},
            **{f"calibration.{name}": part for name, part in self.teller.calibration.state().items()},
        }
        if self.teller.gap_knots is not None:
            tensors["gap.knots"] = self.teller.gap_knots
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
        teller = Teller(
            codec=networks.codec,
            static=networks.static,
            temporal=networks.temporal,
            scales=scales,
            masks=settings.masks,
            static_calibration=RowCalibration.of(parts["static calibration"]),
            calibration=RowCalibration.of(parts["calibration"]),
            gap_knots=parts["gap"]["knots"] if "gap" in parts else None,
        )
        return cls(settings, scales, networks, teller)

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


def _settled(teller: Teller, networks: Networks, source: RandomSource, count: int) -> Teller:
    """The teller with static columns calibrated; all else is told by them, so they come first."""
    for turn in range(_STATIC_PASSES):
        generator = torch.Generator().manual_seed(source.seed64("ehr static calibration", turn))
        with torch.inference_mode():
            rows = teller.statics(networks.drawn(count * _STATIC_PATIENTS, generator), generator)
        scales = teller.scales
        improved = teller.static_calibration.improved(
            raw=rows.raw if scales.stochastic else None,
            seen=rows.seen,
            codes=rows.codes,
            sizes=teller.static.sizes,
            rates=scales.static_rates if teller.masks else np.ones_like(scales.static_rates),
            shares=scales.static_shares,
            stride=1.0,
        )
        teller = replace(teller, static_calibration=improved)
    return teller


def _trial(teller: Teller, networks: Networks, generator: torch.Generator, count: int) -> VisitsDrawn:
    """Records to calibrate on."""
    with torch.inference_mode():
        latent = networks.drawn(count, generator)
        statics = teller.statics(latent, generator)
        return teller.visits(latent, statics, teller.static_values(statics), generator)


def _error(teller: Teller, visits: VisitsDrawn) -> float:
    """How far shares of what is observed, and the mean number of visits, are from those of real records."""
    rates = visits.rows.seen.double().mean(0).numpy()
    wrong = float(np.abs(rates - teller.scales.rates).max()) if teller.masks else 0.0
    return wrong + abs(float(visits.lengths.mean()) / teller.scales.visits - 1.0)


def _improved(teller: Teller, visits: VisitsDrawn) -> Teller:
    """A teller whose shares among visits are nearer to those in its scales."""
    scales = teller.scales
    calibration = teller.calibration.improved(
        raw=visits.rows.raw if scales.stochastic else None,
        seen=visits.rows.seen,
        codes=visits.rows.codes,
        sizes=teller.temporal.sizes,
        rates=scales.rates if teller.masks else np.ones_like(scales.rates),
        shares=scales.shares,
        stride=_STRIDE,
    )
    gaps = teller.gap_knots
    if scales.stochastic:
        gaps = torch.lerp(EVEN if gaps is None else gaps, knots_of(visits.raw_gaps), _STRIDE)
    return replace(teller, calibration=calibration, gap_knots=gaps)
