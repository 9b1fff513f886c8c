"""How many processes find room in what memory is free, of the machine and of the groups that hold this process."""

import pytest

from traceanalyzer import free_memory
from traceanalyzer.free_memory import fitting, fitting_beside, free_bytes
from traceanalyzer.processes import cores_for_a_file, processes_beside, processes_for

GB = 1 << 30


def machine(root, files):
    for name, text in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


MACHINE = {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {8 << 20} kB\n"}
SECOND = {**MACHINE, "proc/self/cgroup": "0::/job/step\n"}
FIRST = {**MACHINE, "proc/self/cgroup": "4:memory,cpu:/docker/abc\n0::/\n"}


def group(place, limit, used, names=("memory.max", "memory.current"), stat="inactive_file 0"):
    texts = dict(zip(names, (limit, used), strict=True)) | {"memory.stat": stat}
    return {f"sys/fs/cgroup/{place}{name}": f"{text}\n" for name, text in texts.items()}


OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes")


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, None),
        (MACHINE, 8 * GB),
        (SECOND, 8 * GB),  # no group has a limit that can be read
        (SECOND | group("job/step/", "max", 5), 8 * GB),
        (SECOND | group("job/step/", 4 * GB, 3 * GB), GB),
        (SECOND | group("job/step/", 4 * GB, 3 * GB, stat=f"inactive_file {GB}"), 2 * GB),
        (SECOND | group("job/", 4 * GB, 2 * GB) | group("job/step/", 4 * GB, GB), 2 * GB),
        (SECOND | group("", 2 * GB, 3 * GB), 0),
        (FIRST | group("memory/", 4 * GB, GB, OLD), 3 * GB),  # within a container its own group lies at the top
        (FIRST | group("memory/docker/abc/", 4 * GB, 2 * GB, OLD, f"total_inactive_file {GB}"), 3 * GB),
    ],
)
def test_least_of_machine_and_groups_is_free(tmp_path, files, free):
    assert free_bytes(machine(tmp_path, files)) == free


@pytest.mark.parametrize(("free", "fit"), [(None, 4), (16 * GB, 4), (2 * GB, 3), (GB - 1, 1), (0, 1)])
def test_processes_find_room_or_are_fewer(monkeypatch, free, fit):
    monkeypatch.setattr(free_memory, "free_bytes", lambda: free)
    monkeypatch.setattr(free_memory, "FEWER", told := [])
    assert fitting(4, GB) == fit
    assert told == ([] if fit == 4 else [(4, fit)])
    assert fitting(1, GB) == 1


@pytest.mark.parametrize(("free", "processes"), [(16 * GB, 4), (2 * GB, 3), (0, 1)])
def test_files_are_read_by_no_more_processes_than_find_room(tmp_path, monkeypatch, free, processes):
    files = [_of_no_blocks(tmp_path / f"rank{rank}.json", 1.2 * GB) for rank in range(4)]
    monkeypatch.setattr(free_memory, "free_bytes", lambda: free)
    monkeypatch.setattr("traceanalyzer.processes._cores", lambda: 4)
    assert processes_for(files, None) == processes
    assert processes_for(files, 4) == 4  # as many as the user says


@pytest.mark.parametrize(
    ("free", "most", "fit"),
    [
        (None, None, 8),
        (16 * GB, None, 8),  # as many as the user says, where there is room
        (3 * GB, None, 3),
        (16 * GB, 4 * GB, 3),  # of which this process holds one
        (2 * GB, 4 * GB, 2),
        (None, 2 * GB, 1),
        (16 * GB, GB, 1),
        (0, None, 1),
    ],
)
def test_processes_at_one_file_find_room_beside_one_another(monkeypatch, free, most, fit):
    monkeypatch.setattr(free_memory, "free_bytes", lambda: free)
    monkeypatch.setattr(free_memory, "anonymous_bytes", lambda: GB)
    monkeypatch.setattr(free_memory, "FEWER", told := [])
    assert fitting_beside(8, GB, most) == fit
    assert told == ([] if fit == 8 else [(8, fit)])
    assert fitting_beside(1, GB, most) == 1


@pytest.mark.parametrize(
    ("texts", "jobs", "free", "processes"),
    [
        ([0.4], None, 100, 16),
        ([3.2], None, 100, 5),
        ([10.0], None, 100, 1),
        ([10.0], 16, 100, 16),  # what the user says lifts what files may take, and not what is free
        ([10.0], 16, 3, 3),
        ([5.0, 5.0], None, 100, 3),
        ([0.1] * 400, None, 100, 16),
        ([500.0], None, 100, 1),
        ([500.0] * 400, None, 100, 16),  # of so many no more is drawn or replayed than of some
    ],
)
def test_what_follows_the_reading_is_shared_by_no_more_processes_than_find_room(
    tmp_path, monkeypatch, texts, jobs, free, processes
):
    files = [_of_no_blocks(tmp_path / f"rank{rank}.json", text * 1e9) for rank, text in enumerate(texts)]
    monkeypatch.setattr(free_memory, "free_bytes", lambda: free * GB)
    monkeypatch.setattr(free_memory, "anonymous_bytes", lambda: 0.3 * GB)
    monkeypatch.setattr("traceanalyzer.processes._cores", lambda: 16)
    monkeypatch.setattr("traceanalyzer.processes.can_fork", lambda: True)
    assert processes_beside(files, jobs) == processes


@pytest.mark.parametrize(
    ("files", "jobs", "processes"), [(1, None, 27), (1, 64, 64), (1, 200, 128), (4, None, 27), (64, None, 2)]
)
def test_a_file_is_decoded_by_no_more_processes_than_find_room(monkeypatch, files, jobs, processes):
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 8 * GB)
    monkeypatch.setattr(free_memory, "anonymous_bytes", lambda: 0.3 * GB)
    monkeypatch.setattr("traceanalyzer.processes._cores", lambda: 128)
    assert cores_for_a_file(files, jobs) == processes


def _of_no_blocks(file, size):
    """A file of so many bytes of which none is written."""
    with file.open("wb") as opened:
        opened.truncate(int(size))
    return file
