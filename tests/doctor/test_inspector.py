"""NCCL Inspector's files: who comes last, and what bandwidth is reached."""

import json

import pytest

from traceanalyzer.doctor import examine, read_inspector
from traceanalyzer.doctor.monitors import bandwidth, last_arrivals
from traceanalyzer.errors import InputError


def record(rank, number, us, *, size=4 << 20, busbw=100.0):
    return {
        "header": {"id": "0x7f", "rank": rank, "n_ranks": 3, "nnodes": 1},
        "metadata": {"dump_timestamp_us": 1_748_030_377_748_202 + number, "hostname": "n", "pid": 1},
        "coll_perf": {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": us,
                      "coll_algobw_gbs": busbw / 1.5, "coll_busbw_gbs": busbw},
    }  # fmt: skip


def write(folder, indent=None):
    for rank in range(3):
        records = [record(rank, number, 100 if rank == 2 else 400) for number in range(60)]
        (folder / f"rank{rank}.log").write_text("".join(json.dumps(one, indent=indent) + "\n" for one in records))


@pytest.mark.parametrize("indent", [None, 2])
def test_the_rank_that_comes_last(tmp_path, indent):
    write(tmp_path, indent)
    found = read_inspector(tmp_path)
    late = last_arrivals(found)
    assert late.iloc[0].to_dict() == {
        "communicator": "0x7f",
        "rank": 2,
        "calls": 60,
        "last": 60,
        "caused_wait_ns": 60 * 300_000,
        "wait_ns": 0,
        "last_pct": 100.0,
    }
    assert bandwidth(found)[["calls", "median_gb_per_s"]].to_numpy().tolist() == [[60, 100.0]]
    one = next(one for one in examine(inspector=tmp_path).diagnoses if one.rule == "often_last")
    assert (one.ranks, "wait 300 µs for it" in one.diagnosis) == ((2,), True)


def test_nothing_of_the_inspector(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    with pytest.raises(InputError, match="no record of NCCL Inspector"):
        read_inspector(tmp_path)
