"""How many processes find room in what memory is free, of the machine and of the groups that hold this process."""

import pytest

from traceanalyzer import execution
from traceanalyzer.execution import fitting, free_bytes

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
    monkeypatch.setattr(execution, "free_bytes", lambda: free)
    monkeypatch.setattr(execution, "FEWER", told := [])
    assert fitting(4, GB) == fit
    assert told == ([] if fit == 4 else [(4, fit)])
    assert fitting(1, GB) == 1
