"""The studies as named sets of runs: A sharding by hand, B DDP and FSDP, C offloading, D a multi-GPU lab."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec

BY_HAND = ("simple_ddp", "simple_ddp_ga", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async")
SHARDED = ("zero1", "zero2", "zero3", "pytorch_zero1", "pytorch_zero2", "pytorch_zero3")
# Whose differences are small enough to be noise.
OVER_SEEDS = {"simple_ddp", "pytorch_ddp", "pytorch_ddp_bf16", "zero2", "zero3", "pytorch_zero2", "pytorch_zero3"}
P2P_OFF = (("NCCL_P2P_DISABLE", "1"),)
PIPELINES = ("pp_naive", "pp_gpipe", "pp_1f1b")
DEEPSPEED = ("deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3")
# Under the profiler the host needs about as long to launch a smaller micro-batch as a large GPU to compute it.
GPU_BOUND_MICRO_BATCH = 16
# Of 12 blocks. Output head and loss take as long as 3.8 of them on an H200: stages `by_time` take equally long.
SPLITS = {
    2: {"uneven": "9,3", "by_time": "8,4"},
    3: {"uneven": "6,3,3", "by_time": "5,5,2"},
    4: {"uneven": "6,2,2,2", "by_time": "4,4,3,1"},
}
BATCHES_OF_THE_SWEEP = (8, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the runs are sized for; on the CPU all models are tiny."""

    gpus: int
    memory_gib: float
    is_cpu: bool = False

    def batch(self, for_80_gib: int, for_140_gib: int | None = None) -> int:
        """Samples a rank: what suits 80 GiB, less where there is less (a power of two), or what suits 140 GiB."""
        if self.is_cpu:
            return 4
        if for_140_gib is not None and self.memory_gib > 130:
            return for_140_gib
        fitting = max(1, int(for_80_gib * min(1.0, self.memory_gib / 79)))
        return for_80_gib if fitting == for_80_gib else 2 ** (fitting.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run, or several that differ in their seed only and share a label.

    Runs of one `sweep` grow in their batch: after one that is out of memory the larger ones need not be tried.
    """

    label: str
    strategy: str
    arguments: tuple[str, ...] = ()
    ranks: int | None = None  # all GPUs
    seed: int = 0
    repeats: int = 1
    sweep: str | None = None
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return self.label if self.seed == 0 else f"{self.label}_seed{self.seed}"

    def repeated(self, seed: int) -> Experiment:
        """The same with another seed, timed only: the first one's trace speaks for all."""
        return replace(self, seed=seed, arguments=(*self.arguments, "--profiler", "none"))


def set_a(hardware: Hardware) -> list[Experiment]:
    """Data parallelism, sharding and pipelines on a 360M decoder, the same global batch for all."""
    batch = hardware.batch(32, for_140_gib=64)
    model = _model("360m", hardware)
    # One batch for all ranks: activations are cut among them in part only, so that it cannot grow with them.
    shared = batch * min(hardware.gpus, 2)
    runs = [Experiment("single", "single", (*model, "--batch", str(batch)), ranks=1)]
    for name in (*BY_HAND, "pytorch_ddp", "pytorch_ddp_bf16", *SHARDED):
        sized = ("--batch", str(batch))
        if name == "simple_ddp_ga":
            # Together the micro-batches make up the batch of the others.
            accumulate = max(2, batch // GPU_BOUND_MICRO_BATCH)
            sized = ("--batch", str(batch // accumulate), "--accumulate", str(accumulate))
        runs.append(Experiment(name, name, (*model, *sized), repeats=3 if name in OVER_SEEDS else 1))
    if find_spec("deepspeed") is not None:
        runs += [Experiment(name, name, (*model, "--batch", str(batch))) for name in DEEPSPEED]
    piped = ("--batch", str(shared), "--microbatches", str(min(8, max(2, shared // GPU_BOUND_MICRO_BATCH))))
    runs += [Experiment(name, name, (*model, *piped)) for name in PIPELINES]
    runs.append(Experiment("tp", "tp", (*model, "--batch", str(shared))))
    if hardware.gpus >= 4:
        runs.append(Experiment("fsdp_hybrid", "fsdp_hybrid", (*model, "--batch", str(batch))))
    return runs


def set_b(hardware: Hardware) -> list[Experiment]:
    """GPT-2 Large on one GPU and on all, and how large a batch fits."""
    model = _model("gpt2-large", hardware)
    # Under the profiler the host needs longer to launch ZeRO-3's 36 blocks than an H200 for 16 sequences.
    batch = hardware.batch(GPU_BOUND_MICRO_BATCH, for_140_gib=2 * GPU_BOUND_MICRO_BATCH)
    sized = (*model, "--batch", str(batch))
    strategies = ("pytorch_ddp", "pytorch_ddp_bf16", "pytorch_zero2", "pytorch_zero3")
    cut = (*model, "--batch", str(max(1, batch // 4)), "--accumulate", "4")
    runs = [Experiment("single", "single", (*sized, "--profile-memory"), ranks=1)]
    runs += [Experiment(name, name, (*sized, "--profile-memory")) for name in strategies]
    runs += [Experiment(f"{name}_ga", name, cut) for name in strategies if name != "pytorch_ddp_bf16"]
    runs = [replace(run, repeats=3) for run in runs]
    if hardware.gpus > 2:
        runs += [Experiment(f"{name}_2_gpus", name, sized, ranks=2) for name in strategies]
    sweep = (*model, "--profiler", "none", "--steps", "5", "--warmup", "2")
    for name in ("single", "pytorch_ddp", "pytorch_zero3"):
        for size in BATCHES_OF_THE_SWEEP[: 2 if hardware.is_cpu else None]:
            if size != batch:
                arguments = (*sweep, "--batch", str(size))
                ranks = 1 if name == "single" else None
                runs.append(Experiment(f"{name}_batch{size}", name, arguments, ranks=ranks, sweep=name))
    return runs


def set_c(hardware: Hardware) -> list[Experiment]:
    """Offloaded zeroth-order training with every GPU uploading everything, and its share only; also without P2P."""
    model = (*_model("360m", hardware), "--batch", str(hardware.batch(16)))
    sliced = (*model, "--slice-params")
    runs = [Experiment("zo_offload_naive", "zo_offload", model), Experiment("zo_offload_sliced", "zo_offload", sliced)]
    runs.append(replace(runs[1], label="zo_offload_sliced_p2p_off", environment=P2P_OFF))
    if hardware.gpus > 2:
        runs += [replace(run, label=f"{run.label}_2_gpus", ranks=2) for run in runs]
    if not hardware.is_cpu:
        recorded = ("--profiler", "nsys")
        runs += [replace(run, label=f"{run.label}_nsys", arguments=(*run.arguments, *recorded)) for run in runs[:2]]
    return runs


def set_d(hardware: Hardware) -> list[Experiment]:
    """Broadcasts, pipelines by stages, chunks and split, and DDP against FSDP over seeds, with an encoder."""
    payload = ("--payload-mib", "16") if hardware.is_cpu else ()
    runs = [
        Experiment(f"broadcast{way}{name}", f"broadcast{way}", (*payload, *more), ranks=1)
        for name, more in (("", ()), ("_pageable", ("--pageable",)))
        for way in (1, 2, 3)
    ]
    # 12 blocks divide evenly over 2, 3 and 4 stages.
    model = (*_model("tiny-bert" if hardware.is_cpu else "bert", hardware), "--layers", "12")
    batch = hardware.batch(64)
    # GPipe holds all micro-batches at a time.
    piped = (*model, "--batch", str(4 * batch))
    # 1F1B holds few micro-batches at a time, and eight need much of the host: they can be large, and have to be.
    by_stages = (*model, "--batch", str(8 * batch), "--microbatches", "8")
    runs += [
        Experiment(f"pp_{stages}_stages", "pp_1f1b", by_stages, ranks=stages, repeats=3)
        for stages in range(2, min(hardware.gpus, 4) + 1)
    ]
    runs += [
        Experiment(f"pp_{chunks}_chunks{name}", "pp_gpipe", (*piped, "--microbatches", str(chunks), *more), ranks=2)
        for name, more, sizes in (("", (), (2, 4, 8, 16)), ("_uneven", ("--split", SPLITS[2]["uneven"]), (2, 4, 8)))
        for chunks in sizes
        if 4 * batch % chunks == 0
    ]
    runs += [
        Experiment(f"pp_{stages}_stages_{name}", "pp_1f1b", (*by_stages, "--split", split), ranks=stages, repeats=3)
        for stages in sorted({2, min(hardware.gpus, 4)})
        for name, split in SPLITS[stages].items()
    ]
    sized = (*model, "--batch", str(2 * batch))
    trained = ("pytorch_ddp", "pytorch_ddp_bf16", "pytorch_zero3")
    exchanged = ("pytorch_ddp", "pytorch_ddp_fp16", "pytorch_ddp_powersgd")
    return [
        *runs,
        *(Experiment(name, name, sized, repeats=3) for name in trained),
        *(Experiment(name, name, sized, repeats=3) for name in exchanged[1:]),
        *(Experiment(f"{name}_p2p_off", name, sized, repeats=3, environment=P2P_OFF) for name in exchanged),
    ]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A change that a set makes from one run to another, as `analyze-traces what-if` is asked for it."""

    before: str
    after: str
    options: tuple[str, ...]


_NO_EXCHANGE = ("--comm", "free", "--waits", "none", "--compute", "alone")


def forecasts(set_name: str, gpus: int) -> list[Forecast]:
    """What the replay of one run is held against in the other."""
    return {
        "A": [
            Forecast("simple_ddp", "pytorch_ddp", ("--comm", "free")),
            Forecast("simple_ddp", "single", _NO_EXCHANGE),
            Forecast("pytorch_ddp", "single", _NO_EXCHANGE),
        ],
        "B": [Forecast("pytorch_ddp", "single", _NO_EXCHANGE)],
        "C": [Forecast("zo_offload_naive", "zo_offload_sliced", ("--copy", f"{gpus}x"))],
        "D": [
            Forecast(f"pp_{stages}_stages", f"pp_{stages}_stages_by_time", ("--stage", "even"))
            for stages in sorted({2, min(gpus, 4)})
        ],
    }[set_name]


SETS = {"A": set_a, "B": set_b, "C": set_c, "D": set_d}


def _model(preset: str, hardware: Hardware) -> tuple[str, ...]:
    if not hardware.is_cpu:
        return ("--model", preset)
    return ("--model", preset if preset.startswith("tiny") else "tiny", "--device", "cpu")
