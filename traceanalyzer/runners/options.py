"""The command line of the runners, and the frozen configuration that it becomes."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.strategies import STRATEGIES, strategy_named


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A transformer's shape; `is_causal` tells the decoder from the encoder."""

    preset: str
    layers: int
    d_model: int
    heads: int
    vocab: int
    seq_len: int
    is_causal: bool = True


# The output head has its own matrix (a pipeline can then split the model anywhere), so `gpt2` counts
# 163 M parameters and `gpt2-large` 838 M, 39 M and 64 M more than the published models with tied ones.
PRESETS = {  # layers, d_model, heads, vocab, seq_len
    "tiny": ModelConfig("tiny", 4, 64, 4, 256, 32),
    "tiny-bert": ModelConfig("tiny-bert", 4, 64, 4, 256, 32, is_causal=False),
    "gpt2": ModelConfig("gpt2", 12, 768, 12, 50_304, 1024),
    "gpt2-large": ModelConfig("gpt2-large", 36, 1280, 20, 50_304, 1024),
    "360m": ModelConfig("360m", 24, 1024, 16, 28_672, 1024),
    "bert": ModelConfig("bert", 12, 768, 12, 30_720, 512, is_causal=False),
}
# Samples a rank and micro-step that keep a large GPU busy also while a profiler slows the host
# (under 80 GB, without activation checkpointing).
DEFAULT_BATCH = {"tiny": 4, "tiny-bert": 4, "gpt2": 24, "gpt2-large": 16, "360m": 24, "bert": 64}


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """What to record, and at what cost.

    `record_shapes` adds input shapes to operators (about a tenth more CPU time); `with_stack` Python frames
    (CPU time doubles or worse, traces grow several times); `profile_memory` an event an allocation (traces
    grow by about a half). Whatever makes the CPU slower can turn a GPU-bound step into a CPU-bound one; un-profiled
    step times stand in run.json for comparison.
    """

    profiler: Literal["torch", "nsys", "none"] = "torch"
    wait: int = 1
    warmup: int = 2
    active: int = 4
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False

    @property
    def first_active(self) -> int:
        """Steps before the first recorded one."""
        return self.wait + self.warmup

    @property
    def steps(self) -> int:
        """Steps to take while profiling."""
        return 0 if self.profiler == "none" else self.first_active + self.active


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run; `batch` is the samples of one data-parallel rank and micro-step."""

    strategy: str
    out: Path
    model: ModelConfig
    batch: int
    accumulate: int
    learning_rate: float
    dtype: str
    profile: ProfileConfig
    microbatches: int
    split: tuple[int, ...] | None = None
    shard_size: int = 2
    slice_params: bool = False
    payload_mib: int = 1024
    pageable: bool = False
    seed: int = 0
    # With the usual 1e-8 a step hardly depends on the gradients' scale; tests raise it to see a wrong mean.
    adam_eps: float = 1e-8
    compile: bool = False
    checkpoint_activations: bool = False
    steps: int = 10
    warmup: int = 5
    device: str | None = None
    timeout_s: int = 120
    ranks: int | None = None
    under_nsys: bool = False
    die: tuple[int, int] | None = None
    memory_snapshot: bool = False


def parse(arguments: Sequence[str]) -> RunConfig:
    """The run that the command line asks for.

    Raises:
        UsageError: a value that makes no sense.
    """
    given = vars(parser().parse_args(arguments))
    import torch  # noqa: PLC0415 - help and mistakes in the options need none

    is_cpu = given["device"] == "cpu" or not torch.cuda.is_available()
    strategy = strategy_named(given["strategy"])
    preset = given["model"] or ("tiny" if is_cpu else "360m")
    accumulate = given["accumulate"] or strategy.default_accumulate
    batch = given["batch"] or DEFAULT_BATCH[preset] * strategy.default_microbatches
    if samples := given["global_batch"]:
        ranks = int(os.environ.get("WORLD_SIZE") or given["ranks"] or 1) if strategy.is_data_parallel else 1
        if given["batch"]:
            raise UsageError("--batch and --global-batch both size a step: give one of them")
        if samples % (accumulate * ranks):
            raise UsageError(f"--global-batch {samples} is no multiple of {accumulate * ranks} (ranks × micro-steps)")
        batch = samples // (accumulate * ranks)
    dimensions = {name: given[name] for name in ("layers", "d_model", "heads", "seq_len") if given[name]}
    model = replace(PRESETS[preset], **dimensions)
    if model.d_model % model.heads:
        raise UsageError(f"--d-model {model.d_model} is not a multiple of the {model.heads} heads: set --heads")
    profile = ProfileConfig(given["profiler"], **{name: given[f"profile_{name}"] for name in _PROFILER})
    made = {
        "out": given["out"] or Path("profile") / given["strategy"],
        "model": model,
        "batch": batch,
        "accumulate": accumulate,
        "learning_rate": given["lr"] or strategy.default_learning_rate,
        "dtype": given["dtype"] or ("fp32" if is_cpu else "bf16"),
        "profile": profile,
        "microbatches": given["microbatches"] or min(strategy.default_microbatches, batch),
    }
    plain = {field.name: given[field.name] for field in fields(RunConfig) if field.name in given}
    return RunConfig(**{**plain, **made})


def parser() -> argparse.ArgumentParser:
    """The options; building it needs no torch."""
    made = argparse.ArgumentParser(
        prog="python -m traceanalyzer.runners",
        description="Train a model for some steps with one strategy and leave traces and a run.json.",
        epilog="example: torchrun --standalone --nproc_per_node=2 -m traceanalyzer.runners "
        "--strategy pytorch_ddp --out profile/pytorch_ddp",
    )
    add = made.add_argument
    add("--strategy", required=True, choices=STRATEGIES, metavar="NAME", help=", ".join(STRATEGIES))
    add("--out", type=Path, help="folder for traces and run.json (default profile/<strategy>)")
    add("--device", choices=("cuda", "cpu"), help="cpu trains over gloo (default cuda)")
    add("--timeout", dest="timeout_s", type=_positive, default=120, metavar="S",
        help="a collective that a rank never joins fails after this (default 120 s)")  # fmt: skip
    add("--die", type=_rank_and_step, metavar="RANK:STEP", help="kill a rank at a step, to see what it leaves behind")
    add("--under-nsys", action="store_true", help=argparse.SUPPRESS)
    add("--model", choices=PRESETS, help="preset (default 360m, on CPU tiny)")
    add("--seq", dest="seq_len", metavar="SEQ", type=_positive, help="tokens a sample")
    for name, what in _SIZES.items():
        add(f"--{name}", type=_positive, help=what)
    add("--dtype", choices=("bf16", "fp32"), help="matrix products (default bf16, on CPU fp32)")
    add("--lr", type=float)
    add("--split", type=_split, help="pp_*: blocks a stage, for example 6,2,2,2")
    add("--profiler", choices=("torch", "nsys", "none"), default="torch")
    for config, helps, prefix in ((RunConfig, _RUN, ""), (ProfileConfig, _PROFILER, "profile_")):
        defaults = {field.name: field.default for field in fields(config)}
        for name, what in helps.items():
            default: Any = defaults[name]
            if isinstance(default, bool):
                how: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "help": what}
                flag = f"--{name}"
            else:
                how = {"type": int if name in _FROM_ZERO else _positive, "help": f"{what} (default {default})"}
                flag = f"--{prefix}{name}"
            add(flag.replace("_", "-"), dest=f"{prefix}{name}", default=default, **how)
    return made


_SIZES = {
    "ranks": "without torchrun: start that many ranks",
    "layers": None,
    "d-model": None,
    "heads": None,
    "batch": "samples a data-parallel rank and micro-step",
    "global-batch": "samples a step of the job, instead of --batch",
    "accumulate": "micro-steps an optimizer step",
    "microbatches": "pp_*: parts of a batch (default 4)",
}
_RUN = {
    "seed": "of weights and data",
    "compile": "torch.compile every block",
    "checkpoint_activations": "recompute blocks in backward",
    "warmup": "steps before timing",
    "steps": "timed steps without profiler",
    "shard_size": "fsdp_hybrid: ranks a shard group",
    "slice_params": "zo_offload: each rank uploads 1/n and gathers",
    "payload_mib": "broadcast*: size",
    "pageable": "broadcast*: from pageable CPU memory",
    "memory_snapshot": "write the allocator's history; a run out of memory leaves a snapshot always",
}
_PROFILER = {
    "wait": "steps before the profiler's warm-up",
    "warmup": "steps that it takes to warm up",
    "active": "recorded steps",
    "record_shapes": "input shapes of operators",
    "with_stack": "Python frames",
    "profile_memory": "an event an allocation",
}
_FROM_ZERO = {"seed", "wait", "warmup"}


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def _split(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _rank_and_step(text: str) -> tuple[int, int]:
    rank, _, step = text.partition(":")
    return int(rank), int(step)
