"""The rule about optimizers that pass over all parameters again and again."""

import pandas as pd
import pytest
from traceanalyzer.findings.devices.unfused import unfused_optimizer

from tests.findings.devices.test_recomputing import MS
from tests.findings.devices.test_written_out import results_of


class Rows:
    def __init__(self, rows):
        self.table = pd.DataFrame(rows)

    def __len__(self):
        return len(self.table)


def found(update_ms=10, *, name="Optimizer.step#AdamW.step", operator="aten::_foreach_{}", passing_ms=5):
    """Of three steps of 100 ms an update in each, half of it in the operators that tell Adam's."""
    results = results_of([("aten::mm", "[[8, 8], [8, 8]]", 50)], names=("headline", "steps"))
    ranges = Rows([{"rank": 0, "name": name, "total_ns": 3 * update_ms * MS}])
    own = [{"rank": 0, "operator": operator.format(each), "calls": 3, "gpu_ops": 3, "gpu_own_ns": passing_ms * MS}
           for each in ("lerp_", "addcmul_", "addcdiv_")]  # fmt: skip
    return unfused_optimizer(results["headline"], results["steps"], ranges, Rows(own))


@pytest.mark.parametrize(("name", "operator"), [("AdamW", "aten::_foreach_{}"), ("Adam", "aten::{}")])
def test_all_passes_can_be_one(name, operator):
    (one,) = found(name=f"Optimizer.step#{name}.step", operator=operator)
    assert str(one.title) == (
        f"{name} updates the parameters in 10 ms of rank 0's GPU time a step, 10 % of a step, in one pass over them after "
        "the other. In one kernel, which reads and writes a third as much, a mean step is at most 6.50 ms shorter."
    )
    assert (one.gain_ns, one.gain_is_bound) == (6_500_000, True)
    assert one.recommendation == f"Update in one pass: torch.optim.{name}(…, fused=True)."
