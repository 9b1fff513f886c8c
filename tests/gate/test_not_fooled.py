"""A gate that holds for a whole job never passes for one that is less: its exit code is not 0."""

import json

import pytest

from tests.builders import document, host, kernel, write
from tests.conftest import sampled
from traceanalyzer.cli import run

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)"

GATE = "idle_pct > 95"
COMM = "overlap_pct < -1"

KEEPS = (GATE, COMM, "exposed_comm_pct > 99", "breakdown.idle_ns > 1 s @ any rank")


def rank_of(rank, *, kernels=4, world_size=2):
    """Two steps of kernels, of which one is an all-reduce."""
    events = [
        host(0, 500, name="ProfilerStep#0", cat="user_annotation"),
        host(500, 500, name="ProfilerStep#1", cat="user_annotation"),
    ]
    for step in range(2):
        for number in range(kernels):
            name = ALL_REDUCE if number == 1 else "gemm"
            start = 500 * step + 100 * number
            own = step * kernels + number + 1
            events += [host(start, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=own)]
            events += [kernel(start + 5, 80, name=name, correlation=own, stream=17 if number == 1 else 7)]
    return document(events, rank=rank, world_size=world_size, trace_id="A")


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        write(tmp_path / "in" / f"rank{rank}.json", rank_of(rank))
    return tmp_path / "in"


def code(*gates, folder="in"):
    return run(
        [folder, "-o", "out", "--format", "json", "-q", *(word for gate in gates for word in ("--fail-on", gate))]
    )


@pytest.mark.parametrize("gate", sampled(KEEPS, every=4))
def test_the_whole_job_passes(job, gate):
    assert job.is_dir()
    assert code(gate) == 0


def cut(job):
    path = job / "rank1.json"
    path.write_bytes(path.read_bytes()[:-700])


def changed(change, *, ranks=(0, 1)):
    """Changes events of some ranks' files."""

    def write_again(job):
        for rank in ranks:
            content = rank_of(rank)
            write(job / f"rank{rank}.json", content | {"traceEvents": change(content["traceEvents"])})

    return write_again


def renamed(events):
    return [{**event, "name": "xfer_k7"} if event["name"] == ALL_REDUCE else event for event in events]


def reordered(events):
    """Kernels with the numbers of each other's launches."""
    kernels = [event for event in events if event["cat"] == "kernel"]
    numbers = [event["args"]["correlation"] for event in kernels]
    for event, number in zip(kernels, reversed(numbers), strict=True):
        event["args"] = event["args"] | {"correlation": number}
    return events


DAMAGE = {
    "names of communication are unknown": changed(renamed),
    "a rank's launches are shuffled": changed(reordered, ranks=(1,)),
    "a rank's file is cut": cut,
    "a rank's file is gone": lambda job: (job / "rank1.json").unlink(),
    "a rank's file is empty": lambda job: (job / "rank1.json").write_bytes(b""),
    "a rank's file is text": lambda job: (job / "rank1.json").write_text("hello"),
    "a rank has no GPU operation": lambda job: write(job / "rank1.json", rank_of(1, kernels=0)),
    "both ranks have none": lambda job: [write(job / f"rank{rank}.json", rank_of(rank, kernels=0)) for rank in (0, 1)],
    "two of four ranks": lambda job: [write(job / f"rank{rank}.json", rank_of(rank, world_size=4)) for rank in (0, 1)],
    "no file at all": lambda job: [(job / f"rank{rank}.json").unlink() for rank in (0, 1)],
    "a rank's file is twice the other's": lambda job: write(job / "rank1.json", rank_of(0)),
    "a rank's file links to nowhere": lambda job: ((job / "rank1.json").unlink(), (job / "rank1.json").symlink_to("none")),
}  # fmt: skip


@pytest.mark.parametrize("what", sampled(tuple(DAMAGE), every=6))
def test_less_than_the_job_does_not_pass(job, what):
    DAMAGE[what](job)
    assert code(GATE) != 0


TYPOS = (
    "idle_pc > 95", "idel_pct > 95", "breakdown.idle_pkt > 95", "braekdown.idle_ns > 1 s", "idle_pct >> 95", "idle_pct > 95 @ any rnak",
    "idle_pct > 9 5", "idle_pct", "", "idle_pct > nan", "idle_pct > inf", "idle_pct > 1e999", "idle_pct +5pp", "nccl.calls[collectiv=all_reduce] > 9999",
    "nccl.calls[collective=all_reduced] > 9999", "step_ms > 70 GB", "idle_pct > 95 # and more",
)  # fmt: skip


@pytest.mark.parametrize("gate", TYPOS)
def test_a_typo_does_not_pass(job, gate):
    assert job.is_dir()
    assert code(gate) != 0


def test_a_figure_that_is_not_there_does_not_pass(job):
    for rank in range(2):
        content = rank_of(rank)
        events = [event for event in content["traceEvents"] if event["name"] != ALL_REDUCE]
        write(job / f"rank{rank}.json", content | {"traceEvents": events})
    assert code("overlap_pct < -1") == 5
    assert code("overlap_pct? < -1") == 0  # who asks for it


@pytest.mark.parametrize("content", ["", "# nothing\n\n", "idle_pct > \n"])
def test_a_file_of_gates_that_says_nothing_does_not_pass(job, content):
    (job.parent / "gates").write_text(content)
    assert run(["in", "-o", "out", "-q", "--gates", "gates"]) != 0
    assert run(["in", "-o", "out", "-q", "--gates", "no_such_file"]) != 0


OF_COMPARISON = tuple((side, name) for name in DAMAGE if name != "two of four ranks" for side in ("in", "base"))


@pytest.mark.parametrize(
    ("side", "what"),
    [
        pytest.param(*case, marks=() if not place % 9 else pytest.mark.thorough)
        for place, case in enumerate(OF_COMPARISON)
    ],
)
def test_a_comparison_with_less_than_a_job_does_not_pass(job, what, side):
    for rank in range(2):
        write(job.parent / "base" / f"rank{rank}.json", rank_of(rank))
    arguments = ["diff", "base", "in", "-o", "both", "--format", "json", "-q", "--force", "--fail-on", "step_ms +50%"]
    DAMAGE[what](job.parent / side)
    assert run(arguments) != 0


def test_a_stored_summary_without_its_table_does_not_pass(job):
    assert code() == 0
    content = json.loads((job.parent / "out" / "summary.json").read_text())
    content["results"].pop("headline")
    (job.parent / "base.json").write_text(json.dumps(content))
    assert run(["diff", "base.json", "in", "-o", "both", "-q", "--fail-on", "step_ms +50%"]) != 0
