"""Of how long a step shares of operators are: of those that they are counted in."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.basis import Basis, basis_of_operators

BASIS = Basis(2, (1, 2), pd.Series({0: 200, 1: 240}))


@pytest.mark.parametrize(
    ("open_ns", "mean_ns"),
    [(100, 100.0), (700, 300.0), (10, 100.0)],
    ids=["as long", "far longer", "cut off"],
)
def test_an_open_step_counts_as_far_as_it_was_recorded(open_ns, mean_ns):
    rows = [(0, 1, True, 90), (0, 2, True, 110), (0, 3, False, open_ns), (0, None, None, None)]
    table = pd.DataFrame(rows, columns=["rank", "step", "is_complete", "window_ns"])
    held = basis_of_operators(SimpleNamespace(table=table), BASIS)
    assert (held.mean_ns(0), held.steps, held.numbers) == (mean_ns, 2, (1, 2))
    assert held.mean_ns(1) == 120, "of a rank without steps the usual one"


def test_a_whole_capture_is_its_own():
    basis = Basis(None, (), pd.Series({0: 500}))
    assert basis_of_operators(SimpleNamespace(table=pd.DataFrame()), basis) is basis
