import re

import pytest

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.diff.metrics import BY_NAME
from traceanalyzer.errors import UsageError
from traceanalyzer.gate import parse, parse_file


@pytest.mark.parametrize(
    ("text", "column", "op", "number", "unit", "scope"),
    [
        ("exposed_comm_pct > 5", "exposed_comm_pct", ">", 5, "", "mean"),
        ("idle_pct>10@any rank", "idle_pct", ">", 10, "", "any rank"),
        ("headline.idle_pct >= 10.5 % @ max", "idle_pct", ">=", 10.5, "%", "max"),
        ("step_ms > 70", "step_ns", ">", 70, "ms", "mean"),
        ("step_ns > 70 ms", "step_ns", ">", 70, "ms", "mean"),
        ("nccl.overlap_pct[collective=all_reduce, dtype=Float] < 50 @ all ranks",
         "overlap_pct", "<", 50, "", "all ranks"),
        ("step_ms +3%", "step_ns", None, 3, "%", "mean"),
        ("step_ms +1", "step_ns", None, 1, "ms", "mean"),
        ("overlap_pct -2pp @ min", "overlap_pct", None, -2, "pp", "min"),
        ("comm_calls +10", "comm_calls", None, 10, "", "mean"),
        ("tokens_per_s -1%", "tokens_per_s", None, -1, "%", "mean"),
        ("peak_reserved_gb > 70", "peak_reserved_bytes", ">", 70, "GB", "mean"),
        ("peak_allocated_gib > 70", "peak_allocated_bytes", ">", 70, "GiB", "mean"),
        ("comm_bytes > 1e3 MiB", "comm_bytes", ">", 1000, "MiB", "mean"),
    ],
)  # fmt: skip
def test_reads(text, column, op, number, unit, scope):
    gate = parse(text)
    assert (gate.column, gate.op, gate.number, gate.unit, gate.scope) == (column, op, number, unit, scope)
    assert not gate.is_optional
    assert text.replace(" ", "").startswith(gate.metric)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "METRIC OP NUMBER"), ("idle_pct", "METRIC OP NUMBER"), ("idle_pct > x", "METRIC OP NUMBER"),
        ("idle_pct > 5 @ some rank", "METRIC OP NUMBER"), ("idle_pct =+ 5", "METRIC OP NUMBER"),
        ("idle_pct > 5; rm", "METRIC OP NUMBER"),
        ("idle_pct +3%", "write pp"), ("idle_pct +3", "write pp"), ("idle_pct > 5 pp", "does not fit"),
        ("step_ns +3", "needs its unit"), ("step_ms +3pp", "does not fit"), ("step_ms > 3 GB", "does not fit"),
        ("step_ms > 3 significant", "significant is of a change"), ("comm_calls > 3 ms", "it has no unit"), ("nccl.calls[all_reduce] > 3", "KEY=VALUE"),
    ],
)  # fmt: skip
def test_refuses(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text)


def test_gates_of_a_file(tmp_path):
    file = tmp_path / "gates"
    file.write_text(
        "# what main must keep\nstep_ms +3% significant\n\nidle_pct > 10  # per cent\nsteps.window_ns[range=a#3] > 5\n"
    )
    assert [gate.text for gate in parse_file(file)] == [
        "step_ms +3% significant",
        "idle_pct > 10",
        "steps.window_ns[range=a#3] > 5",
    ]


@pytest.mark.parametrize(
    ("text", "message"), [("# none\n", "holds no gate"), ("idle_pct\n", "METRIC OP NUMBER"), (None, "cannot be read")]
)
def test_a_file_without_gates_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "gates").write_text(text)
    with pytest.raises(UsageError, match=message):
        parse_file(tmp_path / "gates")


def test_the_examples_that_a_refusal_gives_are_gates_on_figures_that_there_are():
    with pytest.raises(UsageError) as refused:
        parse("idle_pct")
    examples = [parse(text) for text in re.findall(r"'([^']+)'", str(refused.value).partition("such as")[2])]
    assert len(examples) == 5
    assert {gate.column for gate in examples} <= {*BY_NAME, *ANALYSES["headline"].result.columns}
