"""The command line of the runners, and the frozen configuration that it becomes."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.strategies import STRATEGIES, strategy_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
PRESETS = {
    "tiny": ModelConfig("tiny", layers=4, d_model=64, heads=4, vocab=256, seq_len=32),
    "tiny-bert": ModelConfig("tiny-bert", 4, 64, 4, 256, 32, is_causal=False),
    "gpt2": ModelConfig("gpt2", layers=12, d_model=768, heads=12, vocab=50_304, seq_len=1024),
    "gpt2-large": ModelConfig("gpt2-large", layers=36, d_model=1280, heads=20, vocab=50_304, seq_len=1024),
    "360m": ModelConfig("360m", layers=24, d_model=1024, heads=16, vocab=28_672, seq_len=1024),
    "bert": ModelConfig("bert", 12, 768, 12, 30_720, 512, is_causal=False),
}
# Samples a rank and micro-step that keep a large GPU busy also while a profiler slows the host
# (under 80 GB, without activation checkpointing).
DEFAULT_BATCH = {"tiny": 4, "tiny-bert": 4, "gpt2": 24, "gpt2-large": 16, "360m": 24, "bert": 64}


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    """What to record, and at what cost.

    `record_shapes` adds input shapes to operators (about a tenth more host time); `with_stack` Python frames
    (host time doubles or worse, traces grow several times); `profile_memory` an event an allocation (traces
    grow by about a half). `nvtx_ops` writes an NVTX range an operator under Nsight Systems, at the price of
    the operators' host time about doubling. `stream_waits` adds one event a synchronisation, where the version
    of torch can record them. Whatever makes the host slower can turn a GPU-bound step into a
    CPU-bound one; un-profiled step times stand in run.json for comparison.
    """

    profiler: Literal["torch", "nsys", "none"] = "torch"
    wait: int = 1
    warmup: int = 2
    active: int = 4
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False
    nvtx_ops: bool = False
    stream_waits: bool = True

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
    microbatches: int = 1
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
    data: Path | None = None
    device: str | None = None
    timeout_s: int = 120
    ranks: int | None = None
    nsys: str = "nsys"
    under_nsys: bool = False
    die: tuple[int, int] | None = None
    memory_snapshot: bool = False


def parse(arguments: Sequence[str]) -> RunConfig:
    """The run that the command line asks for.

    Raises:
        UsageError: a value that makes no sense.
    """
    options = parser().parse_args(arguments)
    import torch  # noqa: PLC0415 - help and mistakes in the options need none

    is_cpu = options.device == "cpu" or not torch.cuda.is_available()
    strategy = strategy_named(options.strategy)
    preset = options.model or ("tiny" if is_cpu else "360m")
    accumulate = options.accumulate or strategy.default_accumulate
    batch = options.batch or DEFAULT_BATCH[preset] * strategy.default_microbatches
    if options.global_batch:
        batch = _share_of(options, accumulate * (_ranks(options) if strategy.is_data_parallel else 1))
    microbatches = options.microbatches or min(strategy.default_microbatches, batch)
    # Options whose value goes into RunConfig as it is.
    plain = {field.name: getattr(options, field.name) for field in fields(RunConfig) if hasattr(options, field.name)}
    return RunConfig(**{
        **plain,
        "out": options.out or Path("profile") / options.strategy,
        "model": _model(preset, options),
        "batch": batch,
        "accumulate": accumulate,
        "learning_rate": options.lr or strategy.default_learning_rate,
        "dtype": options.dtype or ("fp32" if is_cpu else "bf16"),
        "profile": ProfileConfig(options.profiler, **{name: getattr(options, f"profile_{name}") for name in _PROFILER}),
        "microbatches": microbatches,
    })  # fmt: skip


def _ranks(options: argparse.Namespace) -> int:
    """Ranks of the job: of the launcher, else those that will be started."""
    return int(os.environ.get("WORLD_SIZE") or options.ranks or 1)


def _share_of(options: argparse.Namespace, parts: int) -> int:
    """Samples of one rank and micro-step."""
    if options.batch:
        raise UsageError("--batch and --global-batch both size a step: give one of them")
    if options.global_batch % parts:
        raise UsageError(f"--global-batch {options.global_batch} is no multiple of {parts} (ranks × micro-steps)")
    return int(options.global_batch // parts)


def _model(preset: str, options: argparse.Namespace) -> ModelConfig:
    given = {name: getattr(options, name) for name in ("layers", "d_model", "heads", "seq_len")}
    model = replace(PRESETS[preset], **{name: value for name, value in given.items() if value is not None})
    if model.d_model % model.heads:
        raise UsageError(f"--d-model {model.d_model} is not a multiple of the {model.heads} heads: set --heads")
    return model


def parser() -> argparse.ArgumentParser:
    """The options; building it needs no torch."""
    made = argparse.ArgumentParser(
        prog="python -m traceanalyzer.runners",
        description="Train a model for some steps with one strategy and leave traces and a run.json.",
        epilog="example: torchrun --standalone --nproc_per_node=2 -m traceanalyzer.runners "
        "--strategy pytorch_ddp --out profile/pytorch_ddp",
    )
    made.add_argument("--strategy", required=True, choices=STRATEGIES, metavar="NAME", help=", ".join(STRATEGIES))
    made.add_argument("--out", type=Path, help="folder for traces and run.json (default profile/<strategy>)")
    made.add_argument("--device", choices=("cuda", "cpu"), help="cpu trains over gloo (default cuda)")
    made.add_argument("--ranks", type=_positive, help="without torchrun: start that many ranks")
    made.add_argument("--timeout", dest="timeout_s", type=_positive, default=120, metavar="S",
                      help="a collective that a rank never joins fails after this (default 120 s)")  # fmt: skip
    made.add_argument("--die", type=_rank_and_step, metavar="RANK:STEP",
                      help="kill a rank at a step, to see what it leaves behind")  # fmt: skip
    made.add_argument("--under-nsys", action="store_true", help=argparse.SUPPRESS)
    group = made.add_argument_group("model and data")
    group.add_argument("--model", choices=PRESETS, help="preset (default 360m, on CPU tiny)")
    group.add_argument("--seq", dest="seq_len", metavar="SEQ", type=_positive, help="tokens a sample")
    group.add_argument("--data", type=Path, help="a text whose bytes are the tokens (default synthetic)")
    for name, what in _SIZES.items():
        group.add_argument(f"--{name}", type=_positive, help=what)
    group = made.add_argument_group("training")
    group.add_argument("--dtype", choices=("bf16", "fp32"), help="matrix products (default bf16, on CPU fp32)")
    group.add_argument("--lr", type=float)
    group.add_argument("--split", type=_split, help="pp_*: blocks a stage, for example 6,2,2,2")
    _add_fields(group, RunConfig, _TRAINING)
    group = made.add_argument_group("profiler")
    group.add_argument("--profiler", choices=("torch", "nsys", "none"), default="torch")
    group.add_argument("--nsys", default="nsys", help="the nsys program, if it is not on the PATH")
    group.add_argument("--memory-snapshot", action="store_true",
                       help="write the allocator's history; a run out of memory leaves a snapshot always")  # fmt: skip
    _add_fields(group, ProfileConfig, _PROFILER, dest="profile_")
    return made


_SIZES = {
    "layers": None,
    "d-model": None,
    "heads": None,
    "batch": "samples a data-parallel rank and micro-step",
    "global-batch": "samples a step of the job, instead of --batch",
    "accumulate": "micro-steps an optimizer step",
    "microbatches": "pp_*: parts of a batch (default 4)",
}
_TRAINING = {
    "seed": "of weights and data",
    "compile": "torch.compile every block",
    "checkpoint_activations": "recompute blocks in backward",
    "warmup": "steps before timing",
    "steps": "timed steps without profiler",
    "shard_size": "fsdp_hybrid: ranks a shard group",
    "slice_params": "zo_offload: each rank uploads 1/n and gathers",
    "payload_mib": "broadcast*: size",
    "pageable": "broadcast*: from pageable CPU memory",
}
_PROFILER = {
    "wait": "steps before the profiler's warm-up",
    "warmup": "steps that it takes to warm up",
    "active": "recorded steps",
    "record_shapes": "input shapes of operators",
    "with_stack": "Python frames",
    "profile_memory": "an event an allocation",
    "nvtx_ops": "nsys: a range an operator",
    "stream_waits": "an event a wait of a stream",
}
_FROM_ZERO = {"seed", "wait", "warmup"}


def _add_fields(group: argparse._ArgumentGroup, config: type, helps: Mapping[str, str], dest: str = "") -> None:
    """An option for each of these fields of the dataclass, whose defaults are its own: a number, or a flag."""
    for field in fields(config):
        if (what := helps.get(field.name)) is None:
            continue
        is_flag = isinstance(field.default, bool)
        prefix = dest if not is_flag else ""
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if not is_flag:
            how = {"type": int if field.name in _FROM_ZERO else _positive}
        name = f"--{prefix}{field.name}".replace("_", "-")
        shown = what if is_flag else f"{what} (default {field.default})"
        group.add_argument(name, dest=f"{dest}{field.name}", default=field.default, help=shown, **how)


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
