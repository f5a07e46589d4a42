"""What is imported when it is first used: names of packages, and large libraries that few commands need.

A package says what it makes public in two statements, and `lazily` finds the rest in the first of them:

    if TYPE_CHECKING:
        from sfumato.voting.plan import AEDPFL, KNNDPFL

    __all__ = ["AEDPFL", "KNNDPFL"]
    __getattr__, __dir__ = lazily(__name__)

A module in whose functions a library is used imports it from here, and loads it with the first attribute:

>>> from sfumato._lazy import scipy
>>> float(scipy.special.ndtr(0.0))
0.5
"""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato._extras import remedy


class _Late:
    """A library that is imported with its first attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import pyarrow
    import scipy
    import torch
else:
    pyarrow, scipy, torch = _Late("pyarrow"), _Late("scipy"), _Late("torch")

__all__ = ["lazily", "pyarrow", "scipy", "torch"]


_OPEN = {
    "open_users(…)": "load digiface image_folder array_file open_store emnist_tff emnist_leaf ratings",
    "open_users(…, user=COLUMN)": "from_table",
    "open_users(…, users='character' or 'drawer')": "omniglot_folder omniglot_npz",
    "open_users(…, text='characters' or 'words')": "text_users",
    "open_users(…, store=FOLDER)": "pack",
    "open_examples(…)": "load_examples class_folder npz_examples npy_examples idx_images text_csv",
    "open_examples(…, input=COLUMN, label=COLUMN)": "examples_from_table",
    "open_examples(…, schema=FILE)": "table",
    "open_examples(…, targets=False)": "unlabelled",
}
_VOTES = "DataDependentCost NotPrivate ReleasedCost VoteSensitivity release_cost release_renyi threshold_cost vote_cost"
_REMOVED = {
    "sfumato.data": {
        **{old: f"call sfumato.data.{call}" for call, names in _OPEN.items() for old in names.split()},
        **dict.fromkeys(("Pairs", "lfw_pairs"), "import it from sfumato.metrics"),
        "ExampleSplit": "it is sfumato.data.Split, as for users",
        "writers": "copy recipes/fedemb_writers/writers.py",
    },
    "sfumato.labels": {"NoisyHistogram": "it is sfumato.labels.Counted"},
    "sfumato.accounting": {
        **dict.fromkeys(("Budget", "BudgetExceeded", "Ledger", "Totals"), "import it from sfumato.ledger"),
        "Statement": "import it from sfumato.statement",
        **dict.fromkeys(("ExtrapolationRow", "extrapolate"), "import it from sfumato.report"),
        **dict.fromkeys(_VOTES.split(), "import it from sfumato.voting"),
        **dict.fromkeys(("from_dp_event", "to_dp_event"), "copy tests/dp_accounting_events.py"),
    },
    "sfumato.central": {"OwnLoss": "it is sfumato.central.CustomLoss"},
    "sfumato.clipping": {
        "ConstantClipNorm": "it is sfumato.clipping.Flat",
        "PerLayerClipNorm": "it is sfumato.clipping.PerLayer",
        "AutomaticClipNorm": "it is sfumato.clipping.Automatic",
        **dict.fromkeys(("AdaptiveClipNorm", "QuantileRule"), "it is sfumato.clipping.Adaptive"),
    },
    "sfumato.mechanisms": {
        "IndependentGaussian": "it is sfumato.mechanisms.Gaussian",
        "CorrelatedGaussian": "take Tree, Banded, BLT or BISR",
    },
    "sfumato.models": dict.fromkeys(("VGG", "vgg"), "copy recipes/normalisation_mnist/vgg.py"),
    "sfumato.per_example": dict.fromkeys(("Recheck", "SelfCheck", "self_check"), "import it from sfumato.guard"),
    "sfumato.sampling": {
        "PoissonSampling": "it is sfumato.sampling.Poisson",
        "CyclicPoissonSampling": "it is sfumato.sampling.CyclicPoisson",
        "FixedSizeSampling": "it is sfumato.sampling.FixedSize",
        "MinSeparationSampling": "it is sfumato.sampling.MinSeparation",
        "ShuffledEpochs": "it is sfumato.sampling.Shuffled",
        "OwnClients": "it is sfumato.sampling.SingleUserClients",
    },
    "sfumato.synthesis": dict.fromkeys(
        ("BaselineResult", "BaselineSynthesizer", "CRNNGAN", "Copies", "RCGAN", "TimeGAN", "load_baseline"),
        "copy recipes/ehr_baselines",
    ),
    "sfumato.training": {
        "Opening": "it is sfumato.training.InitialRelease",
        **dict.fromkeys(("PrivatePlan", "TrainingPlan"), "it is sfumato.training.Plan"),
    },
}
"""Names that a package once had, and what to do in their place."""


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported when they are first asked for.

    Args:
        package: its name. Its source has the imports under `if TYPE_CHECKING:`. No name may be that of a module in it,
            which would take its place.

    Returns:
        both; the first raises ModuleNotFoundError, with the remedy, where a library of the extra is missing.
    """
    module = sys.modules[package]
    origins: dict[str, str] = {}

    def origin(name: str) -> str | None:
        if not origins:
            for statement in ast.walk(ast.parse(inspect.getsource(module))):
                if isinstance(statement, ast.ImportFrom):
                    origins.update({each.name: statement.module or "" for each in statement.names})
        return origins.get(name)

    def found(name: str) -> Any:
        if name in module.__all__ and (where := origin(name)) is not None:
            try:
                value = getattr(import_module(where), name)
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(remedy(error) or str(error), name=error.name) from error
            setattr(module, name, value)
            return value
        if (instead := _REMOVED.get(package, {}).get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # A `from` import says nothing of an AttributeError: importlib asks first, and hands an ImportError on.
        asked = sys._getframe(1).f_code.co_filename.startswith("<frozen importlib")
        raise (ImportError if asked else AttributeError)(f"{package}.{name} is gone: {instead}")

    return found, lambda: sorted({*vars(module), *module.__all__})
