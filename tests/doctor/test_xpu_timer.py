"""xpu_timer's metrics: hangs, who is waited for, whose GPU is slow."""

import pytest

from traceanalyzer.doctor import examine, read_monitors
from traceanalyzer.errors import InputError


def metrics(rank, *, latency=400, tflops=500.0, hang=0, pod="NOT_SET"):
    common = f'ip="NOT_SET",job_name="NOT_SET",local_rank="{rank}",pod_name="{pod}",rank="{rank}"'
    collective = (
        f'algorithm="RING_LL",dtype="bf16",level="3",operation="AllReduce",small="0",transport="IntraNode",{common}'
    )
    product = f'dtype="bf16",level="3",operation="Matmul",{common}'
    return "\n".join(
        [
            "# TYPE XPU_TIMER_COLL_KERNEL_AVG_LATENCY gauge",
            f"XPU_TIMER_COLL_KERNEL_AVG_LATENCY{{{collective}}} {latency}",
            f"XPU_TIMER_COLL_KERNEL_BANDWIDTH{{{collective}}} 400.0",
            f"XPU_TIMER_MM_KERNEL_FLOPS{{{product}}} {tflops}",
            f"XPU_TIMER_COMMON_HANG{{{common}}} {hang}",
            "# HELP something else",
            "process_cpu_seconds_total 12",
            "",
        ]
    )


def written(folder, *texts):
    for number, text in enumerate(texts):
        (folder / f"node{number}.txt").write_text(text)
    return folder


def rules(folder):
    return {(one.rule, one.ranks) for one in examine(monitors=[folder]).diagnoses if one.severity != "info"}


def test_figures_of_each_rank(tmp_path):
    found = read_monitors([written(tmp_path, metrics(0, pod="trainer-0"), metrics(1))])
    assert (found.files, found.hanging) == (2, ())
    calls = found.calls
    (row,) = calls[(calls["rank"] == 1) & calls["tflops"].isna()].to_dict("records")
    assert (row["operation"], row["duration_ns"], row["busbw_gb_per_s"]) == ("AllReduce", 400_000, 50.0)  # 400 Gbit/s
    assert calls["tflops"].dropna().tolist() == [500.0, 500.0]


def test_ranks_that_are_alike_are_no_news(tmp_path):
    assert rules(written(tmp_path, *(metrics(rank) for rank in range(4)))) == set()


@pytest.mark.parametrize(
    ("odd", "said"),
    [({"latency": 90}, "often_last"), ({"tflops": 400.0}, "slow_products"), ({"hang": 1}, "reported_hang")],
)
def test_the_rank_that_is_unlike_the_others(tmp_path, odd, said):
    texts = [metrics(rank, **(odd if rank == 2 else {})) for rank in range(4)]
    assert rules(written(tmp_path, *texts)) == {(said, (2,))}


def test_of_two_ranks_neither_is_the_odd_one(tmp_path):
    assert rules(written(tmp_path, metrics(0), metrics(1, latency=90))) == set()


def test_a_text_without_its_figures_is_one_line(tmp_path):
    (tmp_path / "a.txt").write_text("process_cpu_seconds_total 12\n")
    with pytest.raises(InputError, match="no record of NCCL Inspector"):
        read_monitors([tmp_path / "a.txt"])


@pytest.mark.parametrize("value", ["e", "1.2.3", "--1", "1e999", "+", "nan"])
@pytest.mark.parametrize("rank", ["0", "²", "9" * 5000])
def test_what_is_no_number_is_left_out(tmp_path, value, rank):
    found = read_monitors([written(tmp_path, metrics(1), metrics(rank, latency=value, tflops=7))]).calls
    own = found[found["rank"] != 1]
    assert own["tflops"].dropna().tolist() == ([7.0] if rank == "0" else [])
    assert own["duration_ns"].dropna().tolist() == []
