"""Kernels that are slower beside communication."""

from types import SimpleNamespace

import pandas as pd

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from traceanalyzer.analyses.replay.contention import Alone
from traceanalyzer.findings.contention import contention
from traceanalyzer.findings.run import Run, Terms


def _run(beside_ns):
    """A rank that runs a kernel alone four times, and four times beside communication."""
    rows = [("compute", 0, 1_000 * place, 500) for place in range(4)]
    rows += [("compute", 0, 10_000 * place, beside_ns) for place in range(1, 5)] + [("comm", -1, 9_000, 50_000)]
    ops = pd.DataFrame(rows, columns=["kind", "work", "start_ns", "duration_ns"])
    ops = ops.astype({"kind": "category"}).assign(shapes=pd.Categorical([""] * len(ops)))
    node = SimpleNamespace(column=lambda _table, name: ops[name].to_numpy())
    engine = SimpleNamespace(
        job=SimpleNamespace(nodes={0: node}),
        contention=SimpleNamespace(alone={0: Alone(ops)}),
    )
    run = Run({}, engine, (1,), pd.Series([60_000.0], index=[0]))
    run.__dict__.update(terms=Terms(), recorded=1)
    return run


def test_the_same_kernels_are_slower_beside_communication():
    (found,) = contention(_run(900))
    assert found.headline == "Kernels run 1.8× slower while NCCL runs beside them."
    assert found.why == "The same kernels take 3.60 µs/step per rank beside communication, and 2 µs alone."
    assert found.fix.startswith("Give communication fewer SMs (NCCL_MAX_CTAS")
    assert found.what_if == "analyze-traces what-if FOLDER --compute alone"
    assert not list(contention(_run(550)))


def test_kernels_at_one_speed_are_nothing():
    assert not said(usual.ddp(ranks=2, steps=3), "contention")
