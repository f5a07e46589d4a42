"""Every example in a docstring gives what it says."""

import doctest
import importlib
import pkgutil

import pytest

import sfumato

INSIDE = (m.name for m in pkgutil.walk_packages(sfumato.__path__, "sfumato.") if not m.name.endswith("__main__"))
MODULES = ["sfumato", *sorted(INSIDE), "comparison_accountants"]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_a_module_are_true(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert failed == 0
