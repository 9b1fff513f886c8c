"""The rule about hosts that compile while their GPUs wait, and the table that it reads."""

import pytest
from traceanalyzer.findings.hosts.cpu_work import compiling

from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "compilations", "step_needs", "episodes", "places", "replay")
MS = 1_000_000


def results_of(name, length_ms=40, in_steps=(0, 1, 2), captured=()):
    """Steps of 100 ms: the host compiles under that mark, a phase of it inside; then the GPU runs for 20 ms.

    `captured` are other calls of a step: name, start and end in ms, thread.
    """
    begins = [100 * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + 100 * MS) for place, start in enumerate(begins)]
    held = [(name, begins[step] + MS, begins[step] + (1 + length_ms) * MS) for step in in_steps]
    held += [(name, start + MS, start + (length_ms // 2) * MS) for _, start, _ in held]
    calls = [("cudaLaunchKernel", start + 50 * MS, start + 51 * MS) for start in begins]
    calls += [
        (name, start + begin * MS, start + end * MS, thread)
        for start in begins
        for name, begin, end, thread in captured
    ]
    ops = [("gemm", start + 51 * MS, start + 71 * MS, row + 1) for row, start in enumerate(begins)]
    return combine({0: reduce_rank(host_trace(ops, calls, host_ops=held, ranges=steps), NAMES)}, NAMES)


@pytest.mark.parametrize(
    ("made", "compiler"),
    [
        ({"name": "_compile.compile_inner (dynamo_timed)"}, "torch.compile"),
        ({"name": "PJRT_Client_Compile"}, "XLA"),
        ({"name": "XlaCompile:#module=jit_step,program_id=7#"}, "XLA"),
        ({"name": "Torch-Compiled Region: 0/0"}, None),
        ({"name": "backend_compile (dynamo_timed)", "length_ms": 4}, None),
    ],
)
def test_a_host_compiles(made, compiler):
    results = results_of(**made)
    findings = compiling(*(results[name] for name in NAMES))
    assert len(findings) == (compiler is not None)
    if compiler:
        assert f"host compiles ({compiler}) for 40 ms a step: its GPU idles 40 ms of it, 40 % of a step" in (
            findings[0].title
        )
        assert ("torch._dynamo" in findings[0].recommendation) == (compiler == "torch.compile")


_BEGIN, _END, _MAKE = "StreamBeginCapture", "StreamEndCapture", "GraphInstantiate"


@pytest.mark.parametrize(
    ("maker", "calls", "said"),
    [
        ("cuda", [(_BEGIN, 1, 2, 1), (_END, 20, 21, 1), (_MAKE, 21, 31, 1)], "captures graphs for 30 ms a step"),
        ("hip", [(_BEGIN, 1, 2, 1), (_END, 31, 32, 1)], "captures graphs for 31 ms a step"),
        (
            "cuda",
            [(_BEGIN, 1, 2, 1), (_END, 10, 11, 1), (_BEGIN, 31, 32, 1), (_END, 40, 41, 1)],
            "graphs for 20 ms a step",
        ),
        # Another thread, or a graph that is made of no capture.
        ("cuda", [(_BEGIN, 1, 2, 1), (_END, 31, 32, 2)], None),
        ("cuda", [(_MAKE, 1, 40, 1)], None),
    ],
)
def test_a_host_captures_graphs(maker, calls, said):
    results = results_of("aten::mm", captured=[(maker + name, *rest) for name, *rest in calls])
    findings = compiling(*(results[name] for name in NAMES))
    assert len(findings) == (said is not None)
    if said:
        assert said in findings[0].title
        assert "record later, once they are" in findings[0].recommendation
