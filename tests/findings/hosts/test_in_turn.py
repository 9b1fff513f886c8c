"""GPUs of one process that compute one after the other."""

import pandas as pd
import pytest

from tests import builders
from tests.findings.needed import needed_by
from traceanalyzer import analyse, load
from traceanalyzer.findings.hosts.idle import synchronising_calls
from traceanalyzer.findings.hosts.launch_bound import gpus_in_turn, take_turns

NEEDED = tuple(dict.fromkeys((*needed_by(gpus_in_turn), *needed_by(synchronising_calls))))


def recorded(folder, *, gpus=4, at_once=1, waits=True, busy_us=4_000):
    """Five steps of one process: its GPUs compute after each other, some at once; it waits for the last one, or works."""
    events, number = [], 0
    length = busy_us * -(-gpus // at_once) + 300
    for step in range(5):
        begin = step * length
        events.append(builders.host(begin, length - 1, name=f"ProfilerStep#{step}", cat="user_annotation"))
        for gpu in range(gpus):
            number += 1
            launched = begin + 10 + 20 * gpu
            events.append(builders.host(launched, 5, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number))
            start = begin + 150 + busy_us * (gpu // at_once)
            events.append(builders.kernel(start, busy_us - 1, device=gpu, correlation=number))
        call = ("cudaDeviceSynchronize", "cuda_runtime") if waits else ("aten::sort", "cpu_op")
        events.append(builders.host(begin + 120, length - 200, name=call[0], cat=call[1]))
    builders.write(folder / "trace.json", builders.document(events))
    return analyse(load(folder), *NEEDED)


def of(rule, results):
    return rule(**{name: results[name] for name in needed_by(rule)})


@pytest.mark.parametrize(("gpus", "what"), [(4, "all 4 GPUs"), (2, "both GPUs")])
def test_gpus_that_take_turns_are_told_as_what_they_are(tmp_path, gpus, what):
    results = recorded(tmp_path, gpus=gpus)
    (found,) = of(gpus_in_turn, results)
    assert found.title.startswith(
        f"One process drives {what}, and they take turns: while its host waits for one, rank "
    )
    assert "1 of them work at a time" in found.title or "0.9" in found.title
    assert found.gain_ns == pytest.approx(4_000_000 * (gpus - 1), rel=0.2)
    assert of(synchronising_calls, results) == []


@pytest.mark.parametrize(
    "made",
    [{"at_once": 4}, {"at_once": 2}, {"waits": False}, {"gpus": 1}],
    ids=["all at once", "two at once", "the host works meanwhile", "one GPU"],
)
def test_others_take_no_turns(tmp_path, made):
    assert of(gpus_in_turn, recorded(tmp_path, **made)) == []


def test_several_processes_take_no_turns(tmp_path):
    results = recorded(tmp_path)
    files = pd.Series([f"rank{rank}.json" for rank in range(4)])
    ranks = type(results["ranks"])(results["ranks"].table.assign(files=files))
    assert not take_turns(results["headline"], results["steps"], results["sync_calls"], ranks)
