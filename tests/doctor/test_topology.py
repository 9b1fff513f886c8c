"""`nvidia-smi topo -m`, as it is printed and as people paste it."""

import pytest

from tests.doctor.builders import SYS_TOPOLOGY
from tests.samples import SAMPLES
from traceanalyzer.doctor import parse_topology
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import distance

OF_EIGHT = (SAMPLES / "doctor" / "topo_8xH200_nvswitch.txt").read_text()


def test_eight_gpus():
    found = parse_topology(OF_EIGHT)
    assert found.gpus == tuple(f"GPU{number}" for number in range(8))
    assert (found.nics, set(found.gpu_pairs().values()), len(found.gpu_pairs())) == ((), {"NV18"}, 28)
    assert (found.cpu_affinity["GPU7"], found.numa_node["GPU7"]) == ("0-127", "0")


@pytest.mark.parametrize(
    "text",
    [
        SYS_TOPOLOGY,
        SYS_TOPOLOGY.expandtabs(8),
        SYS_TOPOLOGY.replace("\n", "\r\n"),
        "user@host:~$ nvidia-smi topo -m\n" + SYS_TOPOLOGY,
    ],
    ids=["tabs", "spaces", "crlf", "prompt"],
)
def test_nearest_cards_and_names(text):
    found = parse_topology(text)
    assert found.path("GPU0", "GPU1") == "SYS"
    assert found.nearest_nics() == {"GPU0": ("NODE", ("NIC2",)), "GPU1": ("PIX", ("NIC0",))}
    assert (found.name_of("NIC2"), found.numa_node) == ("NIC2 (mlx5_bond_0)", {"GPU0": "0", "GPU1": "1"})


def test_old_output_names_cards_in_the_matrix():
    found = parse_topology(
        "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tSOC\tPHB\t0-7\nGPU1\tSOC\t X \tSOC\t8-15\nmlx5_0\tPHB\tSOC\t X \t\n"
    )
    assert (found.path("GPU0", "GPU1"), found.nics, found.nearest_nics()["GPU0"]) == (
        "SYS",
        ("mlx5_0",),
        ("PHB", ("mlx5_0",)),
    )


def test_paths_are_ordered():
    given = ["SYS", "PIX", "NV2", "NODE", "PHB", "NV18", "PXB"]
    assert sorted(given, key=distance) == ["NV18", "NV2", "PIX", "PXB", "PHB", "NODE", "SYS"]


@pytest.mark.parametrize("text", ["", "hello", "GPU0 GPU1", "\tGPU0\tGPU1\tCPU Affinity\nnothing here"])
def test_garbage_is_one_clear_line(text):
    with pytest.raises(InputError, match=r"topology") as told:
        parse_topology(text, "topology")
    assert "\n" not in str(told.value)
