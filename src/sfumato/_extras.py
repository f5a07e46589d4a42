"""What `pip install sfumato` leaves out: accounting needs little, training brings PyTorch with it.

>>> remedy(ModuleNotFoundError("No module named 'torch'", name="torch"))
"training needs PyTorch: pip install 'sfumato[train]'"
>>> remedy(ModuleNotFoundError("No module named 'my_model'", name="my_model")) is None
True
"""

TRAIN = frozenset(
    {
        *("torch", "safetensors", "greenlet", "cryptography"),
        *("pyarrow", "pandas", "sklearn", "PIL", "matplotlib", "jinja2"),
    }
)
"""The modules of the extra `train` in pyproject.toml."""


def remedy(error: ImportError) -> str | None:
    """One line for a module that is missing because the extra is; None for any other."""
    module = (error.name or "").partition(".")[0]
    if module == "mpyc" and isinstance(error, ModuleNotFoundError):
        return "a tally of several parties needs mpyc: pip install 'sfumato[tally]'"
    if module not in TRAIN or not isinstance(error, ModuleNotFoundError):
        return None
    needed = "training needs PyTorch" if module == "torch" else f"this needs {module}, which comes with training"
    return f"{needed}: pip install 'sfumato[train]'"
