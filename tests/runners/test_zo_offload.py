"""Zeroth-order training: offloaded, sliced or on many ranks, it follows the plain in-memory algorithm."""

import pytest
import torch

from traceanalyzer.runners.model import Tokens, build_model
from traceanalyzer.runners.options import PRESETS
from traceanalyzer.runners.strategies.streams import PERTURBATION

LEARNING_RATE = 1e-3
BASE = f"--device cpu --profiler none --warmup 0 --steps 4 --lr {LEARNING_RATE} --out unused --strategy"
# The two losses differ by 1e-3 of the loss: fp32 noise in them moves the weights, so this is wider than for gradients.
TOLERANCE = 2e-3


ON_TWO_RANKS = [f"{BASE} zo_offload --batch 4", f"{BASE} zo_offload --batch 4 --slice-params"]
ON_ONE = [f"{BASE} zo_offload --batch 8", f"{BASE} single --batch 8"]
RUNS = {1: ON_ONE, 2: ON_TWO_RANKS}


@pytest.fixture
def runs(measured):
    return [measured(line, 2) for line in ON_TWO_RANKS] + [measured(line, 1) for line in ON_ONE]


def in_memory(steps=4, batch=8):
    """MeZO without offload: perturb all, two losses, update all."""
    cpu, config = torch.device("cpu"), PRESETS["tiny"]
    model = build_model(config, cpu, seed=0).requires_grad_(requires_grad=False)
    tokens = Tokens(config, cpu, seed=0, samples=batch)
    parts = [list(part.parameters()) for part in (*model.blocks, model.embedding, model.head)]
    losses = []
    for step in range(steps):
        (data,) = tokens.micro_batches(step, 0, 1, 1)
        directions = {}
        for index, parameters in enumerate(parts):
            flat = draw(sum(p.numel() for p in parameters), step, index)
            for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                directions[parameter] = part.view_as(parameter)
        plus = loss_at(model, directions, PERTURBATION, data)
        minus = loss_at(model, directions, -PERTURBATION, data)
        gradient = (plus - minus) / (2 * PERTURBATION)
        for parameter, direction in directions.items():
            parameter.data -= LEARNING_RATE * gradient * direction
        losses.append(((plus + minus) / 2).item())
    return losses


def loss_at(model, directions, distance, data):
    originals = {parameter: parameter.data for parameter in directions}
    for parameter, direction in directions.items():
        parameter.data = parameter.data + distance * direction
    loss = model(*data)
    for parameter, original in originals.items():
        parameter.data = original
    return loss


def draw(shape, step, key):
    return torch.randn(shape, generator=torch.Generator().manual_seed(step * 10_007 + key))


def test_it_follows_the_in_memory_algorithm(runs):
    expected = in_memory()
    assert max(expected) - min(expected) > 5 * TOLERANCE
    for run in runs[:3]:
        assert run["losses"] == pytest.approx(expected, abs=TOLERANCE)


def test_its_first_loss_is_that_of_single(runs):
    assert runs[0]["losses"][0] == pytest.approx(runs[3]["losses"][0], abs=1e-2)


def test_slicing_uploads_each_byte_once(runs):
    naive, sliced = (sum(rank["uploaded_bytes_per_step"] for rank in run["transfer"]) for run in runs[:2])
    assert naive == 2 * sliced
