"""Advice names the tools of the job's framework."""

import re
from dataclasses import fields

import pandas as pd
import pytest

from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings import tools


@pytest.mark.parametrize(
    ("formats", "expected"),
    [(["kineto"], tools.TORCH), (["xplane", "xplane"], tools.XLA), (["nsys"], tools.TORCH), ([], tools.TORCH)],
)
def test_tools_are_those_of_the_traces(formats, expected):
    ranks = Ranks(pd.DataFrame({"rank": range(len(formats)), "format": formats}))
    assert tools.tools_of(ranks) == expected


def test_xla_is_told_by_its_kernels_too():
    ranks = pd.DataFrame({"rank": [0, 1], "format": "nsys", "versions": ["nsys 2025.3.2.0, compiler XLA"] * 2})
    assert tools.tools_of(Ranks(ranks)) is tools.XLA
    assert tools.tools_of(Ranks(ranks.assign(versions=[ranks["versions"][0], None]))) == tools.TORCH


def test_jax_is_not_told_to_use_torch():
    assert not [
        field.name for field in fields(tools.XLA) if re.search("torch|DDP", str(getattr(tools.XLA, field.name)))
    ]


def test_without_ranks_it_is_torch():
    assert tools.tools_of(None) == tools.TORCH


COMPILED, FUSED, OTHER = (
    "triton_red_fused_native_layer_norm_0",
    "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW>>",
    "triton_kernel_of_mine",
)


@pytest.mark.parametrize(
    ("names", "compiles", "fuses"),
    [([OTHER], False, False), ([COMPILED], True, False), ([FUSED], False, True), ([FUSED, COMPILED], True, True)],
)
def test_what_a_job_uses_already_is_not_advised(names, compiles, fuses):
    used = tools.tools_of(
        Ranks(pd.DataFrame({"rank": [0], "format": "kineto"})), Kernels(pd.DataFrame({"name": names}))
    )
    for advice in (used.launch_less, used.fuse_small, used.fuse_moving):
        assert ("optimizers" in advice) is not fuses
    assert used.launch_less.startswith("CUDA graphs" if compiles else "torch.compile or")
    assert ("already" in used.fusing, 'mode="reduce-overhead"' in used.fuse_small) == (compiles, compiles)
