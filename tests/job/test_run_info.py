import pytest

from traceanalyzer.analyses.memory import estimate
from traceanalyzer.errors import InputError
from traceanalyzer.job import run_info


def test_reads_what_it_knows_and_ignores_the_rest(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(
        '{"format_version": 1, "strategy": "ddp", "world_size": 2, "dtype": null, "batch": {"tokens_per_step": 8192, "x": 1},'
        '"step_time_ns": {"unprofiled": {"mean": 31000000, "std": null, "n": 1, "values": [31000000]}},'
        '"memory": [{"rank": 0, "peak_allocated_bytes": 5}, null], "something": [1]}'
    )
    info = run_info.read(path)
    assert (info.strategy, info.world_size, info.dtype, info.tokens_per_step) == ("ddp", 2, None, 8192)
    assert (info.unprofiled.mean, info.unprofiled.std) == (31_000_000, None)
    assert info.memory[1] is None
    assert run_info.thresholds(info) == {
        "unprofiled_step_ns": 31_000_000,
        "run_memory": {0: {"peak_allocated_bytes": 5}},
        "run_world_size": 2,
    }
    assert run_info.read_or_note(path) == (info, ())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"world_size": "two"}', '{"batch": 5}', '"\xff"'])
def test_what_cannot_be_used_is_said_with_its_path(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"run\.json: not a run\.json that can be used"):
        run_info.read(path)
    info, notes = run_info.read_or_note(path)
    assert info is None
    assert len(notes) == 1


def test_nothing_there_is_nothing_to_say():
    assert run_info.read_or_note(None) == (None, ())
    assert run_info.RunInfo().unprofiled is None
    assert run_info.RunInfo().tokens_per_step is None


def test_a_newer_format_is_said(tmp_path):
    (tmp_path / "run.json").write_text('{"format_version": 2, "strategy": "x"}')
    info, notes = run_info.read_or_note(tmp_path / "run.json")
    assert info.strategy == "x"
    assert "newer format" in notes[0]


def test_absurd_counts_are_unknown_and_end_nothing(tmp_path):
    """Of run.json as strangers write it; an estimate of what is left says nothing that no table can hold."""
    path = tmp_path / "run.json"
    path.write_text(
        f'{{"strategy": "zero3", "world_size": {10**30}, "model": {{"parameters": {10**15 - 1}, "layers": {10**14}, "d_model": {10**14},'
        f' "seq_len": {10**14}, "vocab": {10**400}}}, "batch": {{"micro_batch": {10**14}}}, "parallel": {{"dp": {10**300}}},'
        f' "memory": [{{"rank": 0, "peak_allocated_bytes": {10**20}, "peak_reserved_bytes": true}}, {{"rank": [1]}}]}}'
    )
    info, notes = run_info.read_or_note(path)
    assert (info.world_size, info.memory[0]["peak_allocated_bytes"], notes) == (None, None, ())
    known = run_info.thresholds(info)
    assert known["run_memory"] == {0: {}}
    model = known["trained_model"]
    assert (model.params, model.vocab, model.dp) == (10**15 - 1, None, None)
    table = estimate(model, 80 << 30, None, None).table
    assert table["activation_bytes"].isna().any()
    assert not (table["activation_bytes"].dropna() < 0).any()


@pytest.mark.parametrize("flops", [1e30, -5, 0])
def test_figures_of_a_step_that_cannot_be_are_not_used(tmp_path, flops):
    path = tmp_path / "run.json"
    path.write_text(
        f'{{"world_size": 2, "model_flops_per_step": {flops}, "step_time_ns": {{"unprofiled": {{"mean": -5}}}}}}'
    )
    assert run_info.thresholds(run_info.read(path)) == {"run_world_size": 2}
