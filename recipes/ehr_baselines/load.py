"""Reads a baseline that was fitted in a folder."""

from pathlib import Path

from ehr_baselines.crnngan import CRNNGAN
from ehr_baselines.plan import BaselinePlan, BaselineSynthesizer
from ehr_baselines.rcgan import RCGAN
from ehr_baselines.timegan import TimeGAN
from sfumato._check import InputError
from sfumato.models.weights import read_metadata, read_tensors

_KINDS: dict[str, type[BaselinePlan]] = {kind.name: kind for kind in (TimeGAN, RCGAN, CRNNGAN)}


def load_baseline(path: Path | str) -> BaselineSynthesizer:
    """The synthesizer of a baseline's run that has ended.

    Args:
        path: the run's folder, or the `model.safetensors` in it.

    Raises:
        InputError: there is none, or it is of another kind.
    """
    file = Path(path) / "model.safetensors" if Path(path).is_dir() else Path(path)
    facts = read_metadata(file)
    fields = dict(facts.get("settings") or {})
    kind = _KINDS.get(fields.pop("plan", ""))
    if kind is None or "frames" not in facts:
        known = ", ".join(kind.title for kind in _KINDS.values())
        raise InputError(f"{file} holds no baseline; take the folder of a run of {known} that has ended")
    return BaselineSynthesizer.of(kind(**fields), read_tensors(file), facts)
