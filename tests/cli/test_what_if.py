"""`analyze-traces what-if`."""

import gzip
import json
from pathlib import Path

import pytest

from tests.simulator import capture, kineto, run, scenarios
from traceanalyzer.cli import DONE, USAGE_OR_INPUT
from traceanalyzer.cli import run as command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("job")
    kineto.write(capture(run(scenarios.ddp(2, slow_compute_ns={1: 500_000}))), place)
    return str(place)


def test_says_what_a_step_would_take(folder, capsys):
    assert command(["what-if", folder, "--rank", "1=peers"]) == DONE
    said = capsys.readouterr().out
    assert said.startswith("rank 1=peers\nSaves about ")
    assert " → " in said
    assert "Critical path after:" in said
    assert "Read with care" not in said


def test_what_makes_the_replay_doubtful_is_said(folder, tmp_path, capsys):
    for path in Path(folder).iterdir():
        document = json.loads(gzip.decompress(path.read_bytes()))
        document["traceEvents"] *= 2  # each operation runs inside another one
        (tmp_path / path.stem).write_text(json.dumps(document))
    assert command(["what-if", str(tmp_path), "--rank", "1=peers"]) == DONE
    said = capsys.readouterr().out
    assert "Read with care: " in said
    assert "inside an earlier one of the same stream" in said
    assert command(["what-if", str(tmp_path), "--rank", "1=peers", "--json"]) == DONE
    assert any("inside an earlier" in note for note in json.loads(capsys.readouterr().out)["notes"])


def test_json_has_the_same(folder, capsys):
    assert command(["what-if", folder, "--rank", "1=peers", "--compute", "2x", "--json"]) == DONE
    answer = json.loads(capsys.readouterr().out)
    assert answer["changes"] == ["rank 1=peers", "compute 2x"]
    assert answer["ms"] == pytest.approx(answer["before_ms"] - answer["after_ms"], abs=1e-3)
    assert 0 < answer["low_ms"] <= answer["ms"] <= answer["high_ms"]
    assert sum(answer["path_pct_after"].values()) == pytest.approx(100)


def test_half_of_a_part_saves_at_most_half_of_the_step(capsys):
    capture = Path(__file__).parents[1] / "captures" / "fsdp_full"  # whose window begins at a fixed time
    assert command(["what-if", str(capture), "--cpu", "2x", "--json"]) == DONE
    answer = json.loads(capsys.readouterr().out)
    assert answer["ms"] == pytest.approx(answer["before_ms"] / 2, rel=1e-3)


def test_another_schedule_of_a_pipeline(capsys):
    sample = Path(__file__).parents[2] / "sample_traces" / "pp_1f1b"
    assert command(["what-if", str(sample), "--schedule", "interleaved:2"]) == DONE
    printed = " ".join(capsys.readouterr().out.split())
    assert "with the interleaved schedule, if its 2 stages per rank balance the ranks' work" in printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "say what is to be different"),
        (("--kernel-kind", "compute=gemm"), "say what is to be different"),
        (("--rank", "9=peers"), "no rank 9"),
        (("--host", "soon"), "cannot become"),
        (("--kernel", "nope=2x"), "no kernel contains 'nope'; there are"),
        (("--collective", "allreduce=2x"), "did you mean all_reduce"),
        (("--host", "none", "--in-steps", "99"), "there is no step 99"),
        (("--comm", "0-1=peers"), "none are left"),
        (("--sync", "cudaDeviceSynchronize@lunch=none"), "nothing is launched in a phase 'lunch'; there are"),
        (("--schedule", "soon"), "write gpipe"),
        (("--schedule", "1f1b"), "no ranks of this job"),
        (("--schedule", "1f1b", "--in-steps", "1"), "all ranks and steps"),
    ],
)
def test_refuses(folder, options, said, capsys):
    assert command(["what-if", folder, *options]) == USAGE_OR_INPUT
    assert said in capsys.readouterr().err
