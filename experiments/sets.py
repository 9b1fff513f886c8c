"""The studies as named sets of runs: A sharding by hand, B DDP and FSDP, C offloading, D a multi-GPU lab."""

from __future__ import annotations

from dataclasses import dataclass

BY_HAND = ("simple_ddp", "simple_ddp_ga", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async")
SHARDED = ("zero1", "zero2", "zero3", "pytorch_zero1", "pytorch_zero2", "pytorch_zero3")
PIPELINES = ("pp_naive", "pp_gpipe", "pp_1f1b")
SEEDS = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the runs are sized for; on the CPU all models are tiny."""

    gpus: int
    memory_gib: float
    is_cpu: bool = False

    def batch(self, for_80_gib: int) -> int:
        """Samples a rank: what suits 80 GiB, less where there is less; a power of two."""
        if self.is_cpu:
            return 4
        fitting = max(1, int(for_80_gib * min(1.0, self.memory_gib / 79)))
        return for_80_gib if fitting == for_80_gib else 2 ** (fitting.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run: runs that differ in their seed only share a label."""

    label: str
    strategy: str
    arguments: tuple[str, ...] = ()
    ranks: int | None = None  # all GPUs
    seed: int = 0

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return self.label if self.seed == 0 else f"{self.label}_seed{self.seed}"


def set_a(hardware: Hardware) -> list[Experiment]:
    """Data parallelism, sharding and pipelines on a 360M decoder, the same global batch for all."""
    batch = hardware.batch(16)
    model = _model("360m", hardware)
    whole = str(batch * hardware.gpus)
    runs = [Experiment("single", "single", (*model, "--batch", str(batch)), ranks=1)]
    for name in (*BY_HAND, "pytorch_ddp", *SHARDED):
        # With accumulation four micro-batches make up the batch of the others.
        size = max(1, batch // 4) if name == "simple_ddp_ga" else batch
        runs.append(Experiment(name, name, (*model, "--batch", str(size))))
    runs += [Experiment(name, name, (*model, "--batch", whole)) for name in PIPELINES]
    runs.append(Experiment("tp", "tp", (*model, "--batch", whole)))
    if hardware.gpus >= 4:
        runs.append(Experiment("fsdp_hybrid", "fsdp_hybrid", (*model, "--batch", str(batch))))
    return runs


def set_b(hardware: Hardware) -> list[Experiment]:
    """GPT-2 Large on one GPU and on all, and how large a batch fits."""
    model = _model("gpt2-large", hardware)
    batch = hardware.batch(8)
    sized = (*model, "--batch", str(batch))
    runs = [Experiment("single", "single", sized, ranks=1)]
    runs += [Experiment(name, name, sized) for name in ("pytorch_ddp", "pytorch_zero2", "pytorch_zero3")]
    sweep = (*model, "--profiler", "none", "--steps", "5", "--warmup", "2")
    for name in ("pytorch_ddp", "pytorch_zero3"):
        for factor in (2, 3, 4):
            size = str(batch * factor)
            runs.append(Experiment(f"{name}_batch{size}", name, (*sweep, "--batch", size)))
    return runs


def set_c(hardware: Hardware) -> list[Experiment]:
    """Offloaded zeroth-order training with every GPU uploading everything, and with its share only."""
    model = (*_model("360m", hardware), "--batch", str(hardware.batch(16)))
    return [
        Experiment("zo_offload_naive", "zo_offload", model),
        Experiment("zo_offload_sliced", "zo_offload", (*model, "--slice-params")),
    ]


def set_d(hardware: Hardware) -> list[Experiment]:
    """Broadcasts, pipelines by stages, chunks and split, and DDP against FSDP over seeds, with an encoder."""
    payload = ("--payload-mib", "16") if hardware.is_cpu else ()
    runs = [Experiment(f"broadcast{way}", f"broadcast{way}", payload, ranks=1) for way in (1, 2, 3)]
    # 12 blocks divide evenly over 2, 3 and 4 stages.
    model = (*_model("tiny-bert" if hardware.is_cpu else "bert", hardware), "--layers", "12")
    batch = hardware.batch(64)
    piped = (*model, "--batch", str(2 * batch))
    runs += [
        Experiment(f"pp_{stages}_stages", "pp_1f1b", piped, ranks=stages)
        for stages in range(2, min(hardware.gpus, 4) + 1)
    ]
    runs += [
        Experiment(f"pp_{chunks}_chunks", "pp_gpipe", (*piped, "--microbatches", str(chunks)), ranks=2)
        for chunks in (1, 2, 4, 16)
        if 2 * batch % chunks == 0
    ]
    stages = min(hardware.gpus, 4)
    uneven = {2: "9,3", 3: "6,3,3", 4: "6,2,2,2"}[stages]
    runs.append(Experiment(f"pp_{stages}_stages_uneven", "pp_1f1b", (*piped, "--split", uneven), ranks=stages))
    for seed in SEEDS:
        for name in ("pytorch_ddp", "pytorch_zero3"):
            profiler = () if seed == 0 else ("--profiler", "none")
            runs.append(Experiment(name, name, (*model, "--batch", str(batch), *profiler), seed=seed))
    return runs


SETS = {"A": set_a, "B": set_b, "C": set_c, "D": set_d}


def _model(preset: str, hardware: Hardware) -> tuple[str, ...]:
    if not hardware.is_cpu:
        return ("--model", preset)
    return ("--model", preset if preset.startswith("tiny") else "tiny", "--device", "cpu")
