"""Which rank's experts get most, by layer and step."""

from tests import once
from traceanalyzer.report.rows import loads


def test_the_hot_rank_of_each_dispatch_of_a_capture():
    """The captured job sends 6144 rows to rank 0 and 2048 to rank 1 at first."""
    results = once.results("moe")
    made = loads(results)
    frame = results["exchanges"].to_frame()
    frame = frame[(frame["direction"] == "dispatch") & frame["place"].notna()]
    assert made.rows
    for row in made.rows:
        place = int(row.name.removeprefix("all-to-all "))
        for head, cell in zip(made.heads, row.boxes, strict=True):
            step = int(head.removeprefix("step "))
            own = frame[(frame["place"] == place) & (frame["step"] == step)].set_index("rank")["load_bytes"]
            assert cell.text == f"{own.idxmax()}: {own.max() / own.mean():.2f}"
            assert cell.label.startswith(f"step {step}, all-to-all {place}: rank {own.idxmax()} receives ")
