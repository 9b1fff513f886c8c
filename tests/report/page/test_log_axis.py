import pytest

from traceanalyzer.report.page.charts import log_axis


@pytest.mark.parametrize(("values", "least"), [([33e6, 134e6], 4), ([6e6, 19e6], 4), ([1e3, 1e6], 4), ([1e3, 1e9], 6)])
def test_an_axis_has_several_ticks_between_its_ends(values, least):
    axis = log_axis(values, "bytes", "size")
    assert sum(min(values) <= tick <= max(values) for tick in axis["tickvals"]) >= least
    assert len(axis["ticktext"]) == len(axis["tickvals"]) == len(set(axis["ticktext"]))
