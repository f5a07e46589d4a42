"""What accounting loads, and in which threads it computes."""

import json
import os
import subprocess
import sys

import pytest

from slow import slow_but

# What imports what inside accounting.


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


# The accountants compute in the thread that asks, whatever number of threads the environment gives to BLAS.


_CODE = """
import json, sys, time
import numpy as np
import scipy.fft, scipy.special
from sfumato import accounting as acc

time.sleep(0.3)  # loading starts threads, which spin for a while

run = acc.Gaussian(1.0).poisson(0.01) * 10_000
begun, own = time.process_time(), time.thread_time()
if sys.argv[1] == "epsilon":
    answer = acc.guarantee(run).epsilon_interval(1e-5)
else:
    answer = acc.guarantee(run).tradeoff(np.linspace(0, 1, 9)).tolist()
used, own = time.process_time() - begun, time.thread_time() - own
print(json.dumps([answer, used, own]))
"""


@pytest.mark.parametrize("asked", slow_but(["epsilon", "tradeoff"], "epsilon"))
def test_no_other_thread_works_and_no_bit_depends_on_their_number(asked):
    answers = []
    for threads in (None, "1"):
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        if threads is not None:
            environment |= {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", _CODE, asked], env=environment, capture_output=True, text=True, check=True
        )
        answer, used, own = json.loads(done.stdout)
        assert used <= 1.1 * own
        answers.append(answer)
    assert answers[0] == answers[1]
