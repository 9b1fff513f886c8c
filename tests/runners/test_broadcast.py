"""Each broadcast brings every byte to every device and says what crossed which link."""

import pytest
import torch

from traceanalyzer.runners.options import parse
from traceanalyzer.runners.strategies import strategy_named
from traceanalyzer.runners.strategies.base import Job
from traceanalyzer.runners.world import World

PAYLOAD_BYTES = 24 * 2**20  # a chunk and a half


@pytest.mark.parametrize(
    ("name", "uploaded_bytes", "peer_bytes"),
    [
        ("broadcast1", 2 * PAYLOAD_BYTES, 0),
        ("broadcast2", PAYLOAD_BYTES, PAYLOAD_BYTES),
        ("broadcast3", PAYLOAD_BYTES, PAYLOAD_BYTES),
    ],
)
def test_broadcast(name, uploaded_bytes, peer_bytes):
    config = parse(["--strategy", name, "--device", "cpu", "--payload-mib", "24"])
    strategy = strategy_named(name)(Job(config, World(0, 1, torch.device("cpu"))))
    for buffer in strategy.buffers:
        buffer.fill_(-1)
    assert strategy.step([]) is None
    assert len(strategy.buffers) == 2
    for buffer in strategy.buffers:
        assert torch.equal(buffer, strategy.payload)
    pageable = parse(["--strategy", name, "--device", "cpu", "--payload-mib", "24", "--pageable"])
    assert strategy_named(name)(Job(pageable, World(0, 1, torch.device("cpu")))).payload.is_pinned() is False
    transfer = strategy.transfer()
    assert (transfer["uploaded_bytes_per_step"], transfer["peer_bytes_per_step"]) == (
        uploaded_bytes,
        peer_bytes,
    )
