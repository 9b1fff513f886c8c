"""The package's types: every analysis is a function with its own Result, so that a misspelt one is a type error."""

import pytest
from mypy import api

import traceanalyzer
from tests.typed_names import MADE, STUB
from traceanalyzer.analyses import ANALYSES


@pytest.mark.parametrize("place", MADE, ids=lambda place: f"{place.parent.name}/{place.name}")
def test_types_are_those_of_the_registry(request, place):
    made = MADE[place]()
    if request.config.getoption("--update-golden"):
        place.write_text(made, encoding="utf-8")
    assert place.read_text(encoding="utf-8") == made, "run python -m tests.typed_names"


def test_the_stub_has_all_that_the_package_has():
    words = set(STUB.read_text(encoding="utf-8").replace("(", " ").replace(":", " ").split())
    assert {name for name in traceanalyzer.__all__ + list(ANALYSES) if name not in words} == set()


def test_what_a_user_misspells_is_a_type_error(tmp_path):
    user = tmp_path / "user.py"
    user.write_text(
        "import traceanalyzer as ta\n"
        "traces = ta.load('x')\n"
        "ta.brekdown(traces)\n"
        "ta.gaps(traces, idle_shrt_ns=3)\n"
        "reveal_type(ta.breakdown(traces))\n"
        "ta.gaps(traces, idle_short_ns=3)\n"
        "ta.report(traces).figurs()\n"
        "ta.compare(traces, traces).save('x')\n"
        "traces[0].gpu_ops, len(traces), ta.kernels(traces).where(rank=0).head()\n"
        "ta.analyse(traces, 'headline')['headline'].to_frame()['overlap_pct'].max()\n"
        "ta.find(traces, idle_shrt_ns=3)\n"
        "ta.report(traces, idle_shrt_ns=3)\n"
        "ta.analyse(traces, 'gaps', idle_shrt_ns=3)\n"
        "ta.find(traces, idle_short_ns=3)\n"
        "ta.analyse(traces, 'headlin')\n"
        "ta.streams(traces, stream_role_pct=90.5)\n"
        "ta.ranks(traces, hosts='x')\n"
    )
    said, _, _ = api.run(["--strict", "--follow-imports=silent", "--ignore-missing-imports", str(user)])
    lines = [line for line in said.splitlines() if ": error:" in line or "Revealed type" in line]
    told = {int(line.split(":")[1]): line for line in lines}
    assert sorted(told) == [3, 4, 5, 7, 11, 12, 13, 15, 17], said
    assert "Breakdown" in told[5]
