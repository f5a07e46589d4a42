"""What imports what inside accounting."""

import subprocess
import sys

import pytest


def test_no_modules_of_accounting_import_each_other_in_a_circle():
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("sfumato", exclude_type_checking_imports=True)
    left = {module for module in graph.modules if module.startswith("sfumato.accounting")}
    while free := {module for module in left if left.isdisjoint(graph.find_modules_directly_imported_by(module))}:
        left -= free  # what imports nothing that is left is in no circle
    assert not left


def test_the_parts_of_scipy_load_when_they_are_first_used():
    """They take longer than all else that accounting imports: `import scipy` and `scipy.special.f(…)`, no `from`."""
    code = "import sys, sfumato.accounting; print({'scipy.special', 'scipy.fft'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "set()\n"
