"""What imports what inside accounting."""

import pytest


def test_no_modules_of_accounting_import_each_other_in_a_circle():
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("sfumato", exclude_type_checking_imports=True)
    left = {module for module in graph.modules if module.startswith("sfumato.accounting")}
    while free := {module for module in left if left.isdisjoint(graph.find_modules_directly_imported_by(module))}:
        left -= free  # what imports nothing that is left is in no circle
    assert not left
