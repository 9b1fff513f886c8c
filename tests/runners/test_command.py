"""The command as a user starts it: run.json, messages, and what a failure leaves behind."""

import gzip
import json

import pytest
import torch

from traceanalyzer.errors import UsageError
from traceanalyzer.runners import command, run_json, world
from traceanalyzer.runners.options import parse
from traceanalyzer.runners.run_json import RunRecord, peak_memory
from traceanalyzer.runners.strategies import strategy_named
from traceanalyzer.runners.train import planned

CPU = ["--device", "cpu"]


def test_two_ranks_write_run_json(runner, tmp_path):
    done = runner("--strategy pytorch_ddp --device cpu --warmup 1 --steps 3 --out run", ranks=2)
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert (run["format_version"], run["status"], run["world_size"]) == (1, "ok", 2)
    assert run["batch"] == {"micro_batch": 4, "grad_accum": 1, "global_batch": 8, "tokens_per_step": 256}
    unprofiled = run["step_time_ns"]["unprofiled"]
    assert unprofiled["n"] == len(unprofiled["values"]) == 3
    assert (run["dtype"], run["param_dtype"]) == ("fp32", "fp32")
    assert run["tokens_per_s"] == pytest.approx(256e9 / unprofiled["mean"], rel=1e-6)
    assert len(run["losses"]) == 1 + 3 + 7
    assert run["memory"][1] == {"rank": 1, "peak_allocated_bytes": None, "peak_reserved_bytes": None}
    assert str(tmp_path) not in json.dumps(run)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["rank_0", "rank_1", "run.json"]


def test_a_rank_that_dies_leaves_the_other_trace(runner, tmp_path):
    done = runner("--strategy simple_ddp --device cpu --warmup 0 --steps 1 --die 1:6 --out run", ranks=2)
    assert done.returncode != 0
    (trace,) = (tmp_path / "run").glob("rank_*/*.pt.trace.json.gz")
    assert trace.parent.name == "rank_0"
    recorded = [event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]]
    assert "ProfilerStep#4" in recorded
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["status"] == "failed"
    assert run["error"]
    assert "127.0.0.1" not in run["error"]


def test_out_of_memory_is_a_result(tmp_path, monkeypatch):
    def too_much(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(strategy_named("single"), "step", too_much)
    status = command.main(["--strategy", "single", *CPU, "--batch", "2", "--out", str(tmp_path)])
    assert status == command.Exit.OUT_OF_MEMORY
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["status"], run["batch"]["global_batch"]) == ("oom", 2)
    assert run["error"] == "OutOfMemoryError: CUDA out of memory"
    assert run["step_time_ns"] is run["losses"] is run["tokens_per_s"] is None
    assert run["memory"] == [{"rank": 0, "peak_allocated_bytes": None, "peak_reserved_bytes": None}]


def test_out_of_memory_keeps_the_peak_and_outranks_what_it_caused(tmp_path, monkeypatch):
    """The other ranks lose their connection to the one that ran out, and may say so first."""

    def too_much(*_):
        RunRecord("single", 2, status="failed").write(tmp_path)
        raise torch.OutOfMemoryError("CUDA out of memory")

    peak = {"rank": 1, "peak_allocated_bytes": 70 * 2**30, "peak_reserved_bytes": 78 * 2**30}
    monkeypatch.setattr(run_json, "peak_memory", lambda *_: peak)
    monkeypatch.setattr(strategy_named("single"), "step", too_much)
    command.main(["--strategy", "single", *CPU, "--out", str(tmp_path)])
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["status"], run["memory"]) == ("oom", [peak])


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("no memory in /home/me/train.py at [10.0.0.7]:29500.\nMore", "no memory in train.py at <peer>."),
        ("at ../torch/csrc/c10d/NCCL.cpp:36, GB/s", "at NCCL.cpp:36, GB/s"),
        ("from:/data/me/runs/x.pt", "from:x.pt"),
        ("see (https://pytorch.org/docs/stable/notes/cuda.html#a)", "see (https://pytorch.org/docs/stable/notes/cuda.html#a)"),
    ],
)  # fmt: skip
def test_an_error_names_no_folder_of_the_machine(said, kept):
    unknown = peak_memory(0, torch.device("cpu"))
    assert RunRecord("single", 1).failed(ValueError(said), unknown).error == f"ValueError: {kept}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has a GPU")
def test_no_gpu_offers_the_cpu(capsys):
    assert command.main(["--strategy", "single"]) == command.Exit.USAGE
    assert "--device cpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "ranks", "message"),
    [
        ("--strategy single", 2, "in one process"),
        ("--strategy pytorch_ddp", 1, "at least 2 ranks"),
        ("--strategy broadcast2", 2, "in one process"),
        ("--strategy fsdp_hybrid --shard-size 3", 4, "does not divide"),
        ("--strategy tp", 3, "heads"),
        ("--strategy pp_gpipe --split 2,1", 2, "3 blocks"),
        ("--strategy pp_gpipe --split 2,1,1", 2, "3 stages"),
        ("--strategy pp_gpipe", 5, "too few"),
        ("--strategy pp_1f1b --microbatches 3", 2, "does not divide"),
        ("--strategy pp_naive --accumulate 2", 2, "microbatches"),
        ("--strategy zo_offload --accumulate 2", 1, "accumulate"),
    ],
)
def test_a_job_that_does_not_fit_is_refused(arguments, ranks, message):
    config = parse([*arguments.split(), *CPU])
    with pytest.raises(UsageError, match=message):
        strategy_named(config.strategy).check(config, ranks)


@pytest.mark.parametrize(
    ("strategy", "dtype"), [("pytorch_ddp", "fp32"), ("zero2", "fp32"), ("zero3", "bf16"), ("pytorch_zero2", "bf16")]
)
def test_run_json_tells_autocast_from_bf16_parameters(strategy, dtype):
    record = planned(parse(["--strategy", strategy, *CPU, "--dtype", "bf16"]), world_size=2)
    assert (record.dtype, record.param_dtype) == ("bf16", dtype)


@pytest.mark.parametrize(
    ("arguments", "batch"),
    [
        ("--strategy pytorch_ddp --ranks 4 --accumulate 2", 8),
        ("--strategy single", 64),
        ("--strategy tp --ranks 4", 64),
    ],
)
def test_a_global_batch_is_shared_by_ranks_and_micro_steps(arguments, batch):
    config = parse([*arguments.split(), *CPU, "--global-batch", "64"])
    assert config.batch == batch
    record = planned(config, config.ranks or 1)
    assert record.batch.global_batch == 64


@pytest.mark.parametrize("more", ["--global-batch 6 --ranks 4", "--global-batch 8 --batch 2"])
def test_a_global_batch_that_does_not_fit_is_refused(more):
    with pytest.raises(UsageError, match="--global-batch"):
        parse(["--strategy", "pytorch_ddp", *CPU, *more.split()])


def test_run_json_has_what_was_set_for_nccl_and_cuda(monkeypatch):
    monkeypatch.setattr("os.environ", {"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO", "HOME": "x", "CUDA_HOME": "/a/b",
                                       "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})  # fmt: skip
    record = planned(parse(["--strategy", "single", *CPU]), world_size=1)
    assert record.environment == {"NCCL_P2P_DISABLE": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_nccls_own_words_become_the_links_used(tmp_path, monkeypatch):
    monkeypatch.setattr("os.environ", {"RANK": "1"})
    world.log_nccl(tmp_path)
    assert world.transports() is None
    (tmp_path / "nccl.1.log").write_text(
        "h:1:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM\n"
        "h:1:2 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM\n"
    )
    assert world.transports() == ["P2P/CUMEM"]
    assert not [*tmp_path.iterdir()]


def test_nsys_commands_wrap_the_launcher(tmp_path):
    job = command.launch_command(["--strategy", "zero3", "--profiler", "nsys"], ranks=2)
    profile, export = command.nsys_commands(tmp_path, job)
    assert profile[:2] == ["nsys", "profile"]
    assert "--capture-range=cudaProfilerApi" in profile
    assert profile[-len(job) :] == job
    assert "--nproc_per_node=2" in job
    assert "--include-blobs=true" in export


def test_without_nsys_the_commands_are_printed(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert command.main(["--strategy", "zero3", "--profiler", "nsys", "--ranks", "2"]) == command.Exit.USAGE
    message = capsys.readouterr().err
    assert "  nsys profile" in message
    assert "  nsys export --type=sqlite" in message


def test_nsys_records_then_exports(tmp_path, monkeypatch):
    program = tmp_path / "nsys"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/called\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.record_with_nsys(tmp_path / "run", command.nsys_commands(tmp_path / "run", ["true"])) == 0
    assert (tmp_path / "called").read_text().split() == ["profile", "export"]


def test_ranks_without_gpus_are_refused_before_torchrun_starts(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("os.execv", lambda *_: pytest.fail("torchrun was started"))
    assert command.main(["--strategy", "pytorch_ddp", "--ranks", "2"]) == 2
    assert capsys.readouterr().err.startswith("error: no CUDA device was found: add --device cpu")
