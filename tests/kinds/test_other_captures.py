"""Captures of one's own, in the folder that `TRACEANALYZER_TRACES` names: no kernel communicates unsaid."""

import os
from pathlib import Path

import pytest

import traceanalyzer as ta
from traceanalyzer import kinds
from traceanalyzer.analyses import run
from traceanalyzer.errors import InputError

FOLDER = os.environ.get("TRACEANALYZER_TRACES")

WORDS = ("allreduce", "allgather", "reducescatter", "alltoall", "nccl", "rccl", "shmem", "symmetric_memory", "deep_ep",
         "cross_device", "multimem", "userbuffers", "internode", "intranode")  # fmt: skip


def _captures():
    places = sorted(Path(FOLDER).rglob("*")) if FOLDER else []
    return [place for place in places if place.name.endswith((".json.gz", ".json", ".sqlite", "_pqtdir"))]


@pytest.mark.skipif(not FOLDER, reason="TRACEANALYZER_TRACES names no folder of captures")
@pytest.mark.parametrize("place", _captures(), ids=lambda place: f"{place.parent.name}/{place.name}")
def test_no_kernel_that_speaks_of_communication_counts_as_compute_unsaid(place):
    try:
        traces = ta.load([place])
    except InputError:
        pytest.skip("no trace")
    for trace in traces.ranks:
        ops = trace.gpu_ops[(trace.gpu_ops["kind"] == "compute") & (trace.gpu_ops["activity"] == "kernel")]
        names = [str(name) for name in ops["name"].unique()]
        plain = {name: name.split("<")[0].split("(")[0].lower().replace("_", "") for name in names}
        speaking = [name for name in names if any(word.replace("_", "") in plain[name] for word in WORDS)]
        silent = [name for name in speaking if not (kinds.is_fused(name) or kinds.speaks_of_communication(name))]
        assert not silent
        if any(kinds.speaks_of_communication(name) for name in names):
            checks = [row["check"] for row in run([trace], ["integrity"])["integrity"].rows()]
            assert "unknown_communication" in checks
