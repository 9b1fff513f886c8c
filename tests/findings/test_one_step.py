"""What is said of a capture of which one step is looked at."""

import traceanalyzer as ta
from tests.asked import said_of
from tests.samples import folder


def test_the_only_step_is_no_mean_and_what_happens_in_it_no_rate():
    found = said_of(*ta.load(folder("moe"), steps="last").ranks)
    late, *others = [each.title for one in found for each in (one, *one.also)]
    assert late == (
        "Rank 0 computes 6.41 ms, rank 1 2.85 ms, most of it aten::mm: rank 1 waits 3.56 ms for it inside all-to-all. "
        "Mended, the step is 2.09 ms shorter."
    )
    assert any("Without them in the way the step is at most 1.05 ms shorter." in title for title in others)
    assert not any("mean step" in title or "every step" in title for title in others)
