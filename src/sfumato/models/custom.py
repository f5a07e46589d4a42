"""A user's own network by name: module:factory, where the factory is a class or a function without arguments."""

import importlib
import sys
from pathlib import Path

import torch
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.models.check import refuse_no_values


def custom_model(name: str, source: RandomSource) -> nn.Module:
    """Import the module and call the factory; the folder that the command runs in is searched too.

    Args:
        name: module:factory, for example networks.mine:resnet.
        source: of the run, for the weights that the factory draws from torch's generator.

    Raises:
        InputError: there is no such module or function, it fails, or it gives no module whose weights have shapes.
    """
    module, _, factory = name.partition(":")
    if not module or not factory:
        raise InputError(f"a model of your own must be module:factory, got {name!r}; for example networks:resnet")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
        if not hasattr(found, factory):
            raise InputError(f"{name}: {module} has no {factory}; name a class or a function without arguments")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(source.seed64("initial model"))
            made = getattr(found, factory)()
    except ModuleNotFoundError as error:
        raise InputError(f"{name}: {error}; give module:factory, and run it where the module is") from None
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's own module raises
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{name} failed ({what}); it must give a model without arguments") from None
    finally:
        sys.path.pop(0)
    if not isinstance(made, nn.Module):
        raise InputError(f"{name} gave a {type(made).__name__}, not a torch module; return the model")
    refuse_no_values(made)
    return made
