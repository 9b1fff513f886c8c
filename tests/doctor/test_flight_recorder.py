"""Dumps of PyTorch's flight recorder, of many ranks, versions and hands."""

import json
import pickle
import time

import pytest

from tests.doctor.builders import dump, entry, write_dumps
from traceanalyzer.doctor import examine, read_flight_recorder
from traceanalyzer.errors import InputError
from traceanalyzer.report import examination as report_examination


def test_a_thousand_ranks_within_five_seconds(tmp_path, request):
    world, last = 1024, 12
    dumps = {}
    for rank in range(world):
        entries = [entry(seq) for seq in range(1, last)]
        if rank != 700:
            entries.append(entry(last, state="started", sizes=((512,),) if rank in (3, 900) else ((1024,),)))
        dumps[rank] = dump(entries, range(world))
    folder = write_dumps(tmp_path / "dumps", dumps)
    began = time.process_time()
    found = examine(flight_recorder=folder)
    # A processor that others use too counts more seconds for the same work.
    assert time.process_time() - began < 5 or not request.config.getoption("--thorough")
    absent, different = (
        next(one for one in found.diagnoses if one.rule == rule) for rule in ("rank_never_came", "mismatched_calls")
    )
    assert (absent.ranks, different.ranks) == ((700,), (3, 900))
    assert "ranks 0–699 and 701–1023 wait there" in absent.diagnosis
    (drawn,) = report_examination.pictures(found.case.recorder)
    assert [(row.label, row.is_suspect) for row in drawn.rows] == [
        ("rank 700", True), ("ranks 3 and 900", True), ("ranks 0–2, 4–699, 701–899 and 901–1023", False),
    ]  # fmt: skip
    assert "never called all-reduce number 12" in report_examination.page(found)


@pytest.mark.parametrize(("others", "what"), [
    ({"operation": "nccl:broadcast"}, "operation"), ({"sizes": ((7,),)}, "sizes"), ({"dtype": "Half"}, "dtypes"),
])  # fmt: skip
def test_mismatches(tmp_path, others, what):
    dumps = {rank: dump([entry(1), entry(2, **(others if rank == 2 else {}))], range(4)) for rank in range(4)}
    recorder = read_flight_recorder(write_dumps(tmp_path / "dumps", dumps))
    (found,) = recorder.mismatches
    assert (found.what, found.seq, list(found.others), found.agreeing) == (what, 2, [2], 3)
    assert recorder.where(found.calls[0]) == "train.py:42 in train_step"


def test_uneven_all_to_all_is_no_mismatch(tmp_path):
    dumps = {rank: dump([entry(1, "nccl:all_to_all", sizes=((rank + 1,),))], range(2)) for rank in range(2)}
    assert read_flight_recorder(write_dumps(tmp_path / "dumps", dumps)).mismatches == []


def test_groups_of_one_name_are_kept_apart(tmp_path):
    """Tensor-parallel groups of a mesh share a name; rank 3 is missing in its own only."""
    dumps = {}
    for rank in range(4):
        group = (0, 1) if rank < 2 else (2, 3)
        entries = [entry(1, group=("tp", "mesh_tp"))] + [
            entry(2, group=("tp", "mesh_tp"), state="started" if rank == 2 else "completed")
        ] * (rank != 3)
        dumps[rank] = dump(entries, group, "tp", "mesh_tp")
    (found,) = read_flight_recorder(write_dumps(tmp_path / "dumps", dumps)).absences
    assert (found.group.ranks, found.missing, found.came) == ((2, 3), (3,), (2,))


@pytest.mark.parametrize("shape", ["list of 2.2", "dict of 2.3", "json"])
def test_older_dumps_and_json(tmp_path, shape):
    def old(seq, state):
        told = entry(seq, state=state)
        for name in ("collective_seq_id", "p2p_seq_id", "process_group", "is_p2p", "time_created_ns", "timeout_ms"):
            del told[name]
        return told | {"seq_id": seq, "time_created_us": 1_700_000_000_000_000 + seq}

    for rank in range(2):
        entries = [old(1, "completed"), old(2, "scheduled")][: 2 - rank]
        path = tmp_path / f"rank{rank}{'.json' if shape == 'json' else ''}"
        if shape == "json":
            path.write_text(
                json.dumps({"version": "2.3", "entries": [entry(1), entry(2, state="started")][: 2 - rank]})
            )
        else:
            path.write_bytes(
                pickle.dumps(entries if shape == "list of 2.2" else {"version": "1.5", "entries": entries})
            )
    (found,) = read_flight_recorder(tmp_path).absences
    assert (found.call.seq, found.missing, found.call.created_ns) == (
        2,
        (1,),
        1_700_000_000_002_000_000 if shape == "json" else 1_700_000_000_000_002_000,
    )


def test_a_page_of_calls_without_a_time(tmp_path):
    dumps = {
        rank: dump([entry(1, state="started", **({"time_created_ns": None} if rank else {}))], (0, 1))
        for rank in (0, 1)
    }
    page = report_examination.page(examine(flight_recorder=write_dumps(tmp_path / "dumps", dumps)))
    assert "2023-11-14 22:13:20.001000000" in page


class Evil:
    def __reduce__(self):
        return (open, ("evil-was-here", "w"))


def test_a_malicious_dump_is_refused_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_dumps(tmp_path / "dumps", {0: {"entries": [Evil()]}})
    with pytest.raises(InputError, match=r"refused.*io\.open"):
        read_flight_recorder(folder)
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\x80\x02", b"\x80\x04garbage", b"{", b"[1", b"\x1f\x8b\x08broken", pickle.dumps(5), b"{}"],
)
def test_garbage_is_one_clear_line(tmp_path, content):
    (tmp_path / "rank_0").write_bytes(content)
    with pytest.raises(InputError) as told:
        read_flight_recorder(tmp_path)
    assert "\n" not in str(told.value)


def test_names_that_steer_a_terminal_or_the_direction_of_writing_are_marked(tmp_path):
    odd = "\x1b[31mred\u202egnp\ud800"
    dumps = {rank: dump([entry(1, f"nccl:{odd}", sizes=((rank,),))], range(2), description=odd) for rank in range(2)}
    text = report_examination.text(examination := examine(flight_recorder=write_dumps(tmp_path / "dumps", dumps)))
    for shown in (json.loads(text)["tables"]["last_calls"][0]["operation"], report_examination.page(examination)):
        assert not {"\x1b", "\u202e", "\ud800"} & set(shown)
        assert "�[31mred�gnp�" in shown
