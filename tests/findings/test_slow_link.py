"""Links slower than in other steps, or than the hardware."""

from tests.findings.of_job import said
from tests.simulator.faults import Fault
from tests.simulator.jobs import links, replicated_pipelines

MS = 1_000_000


def test_transfers_of_one_step_are_slower_than_the_others():
    (found,) = said(links.links(faults=(Fault("link", 30 * MS, tuple(range(12)), (2,)),)), "slow_link")
    assert found.headline == "Slow links in step 2: all-gathers take 62.7× their usual time."
    assert found.what_if == "analyze-traces what-if FOLDER --collective all_gather=usual --in-steps 2"
    assert found.saves.low_ns == 0  # whether it recurs is unknown
    assert not said(links.links(), "slow_link")


def test_pcie_could_carry_what_nvlink_does():
    slow = replicated_pipelines.edged(
        faults=(Fault("link", 40 * MS, (0, 1, 2, 3)),), edges=(0, 1, 2), elements=24_000_000, message_ns=266_667
    )
    (found,) = said(slow, "slow_link")
    assert found.headline == "Slow link: messages reach 17 GB/s, NVLink carries 450."
    assert found.why == "Large transfers between ranks 0–3 are no faster than PCIe (63 GB/s)."
    assert found.fix.startswith("nvidia-smi topo -m; NCCL_DEBUG=INFO")
    assert found.caveat
    assert not found.ranks
