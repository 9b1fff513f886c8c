"""Why a GPU idles is not told where nothing says which calls launched its work; what to record depends on what is there."""

import json

import pytest

import traceanalyzer as ta
from tests.asked import said_of
from tests.builders import document, host, kernel, write

CALL = host(0, 5, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1)
OPERATOR = host(0, 5, name="aten::mm")


@pytest.mark.parametrize(
    ("of_host", "advised"),
    [([], "Record the host too: torch"), ([OPERATOR], "Record the calls of the GPU's runtime, too: torch"), ([OPERATOR, CALL], "Let hosts wait")],
    ids=["nothing", "operators", "calls"],
)  # fmt: skip
def test_what_was_recorded_of_the_host_is_not_advised(tmp_path, of_host, advised):
    work = [kernel(100 * place, 50, correlation=1000 + place) for place in range(20)]
    trace = ta.load(write(tmp_path / "rank0.json", json.loads(json.dumps(document([*of_host, *work])))).parent)
    (finding,) = (each for each in said_of(*trace) if each.table == "idle" and "cannot be told" in each.title)
    assert finding.recommendation.startswith(advised)
    notes = ta.integrity(trace).to_frame().set_index("check")["sentence"]
    assert ("no call bears their numbers" in notes["operations_without_launch"]) == (CALL in of_host)
