import pytest

from traceanalyzer.meaning.columns import Column, Unit, stem, unit_of


@pytest.mark.parametrize(
    ("name", "unit", "without"),
    [("idle_ns", Unit.NS, "idle"), ("size_bytes", Unit.BYTES, "size"), ("overlap_pct", Unit.PCT, "overlap"), ("bytes", Unit.BYTES, "bytes"),
     ("tflops_per_s", Unit.TFLOPS_PER_S, "tflops_per_s"), ("peak_gbytes_per_s", Unit.GB_PER_S, "peak"), ("busbw_gbps", Unit.GB_PER_S, "busbw"),
     ("model_flops", Unit.FLOPS, "model"), ("rank", None, "rank"), ("sends", None, "sends"), ("columns", None, "columns")],
)  # fmt: skip
def test_the_unit_is_the_ending_of_a_name(name, unit, without):
    assert (unit_of(name), stem(name)) == (unit, without)


def test_a_name_alone_tells_lengths_from_moments():
    assert [Column.named(name).is_moment for name in ("start_ns", "launch_start_ns", "idle_ns")] == [True, True, False]
    assert Column.named("cause").unit is Unit.TEXT


def test_a_misspelt_property_of_a_column_is_an_error():
    with pytest.raises(TypeError):
        Column.time("Time.", is_secondry=True)
