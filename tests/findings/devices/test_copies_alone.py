"""A process that does nothing but copy: no compute could hide that, and its turns are no samples to be stacked."""

import traceanalyzer as ta
from tests.asked import said_of
from tests.builders import document, host, kernel, write

_COPIES = ("Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pinned -> Device)")


def test_no_gain_is_told_of_copies_that_nothing_could_hide(tmp_path):
    """Pieces of 8 MiB to the host and back, each launched by a call that waits for it."""
    events = []
    for place in range(200):
        begin = 1000.0 + 420 * place
        call = host(begin - 60, 385, name="cudaMemcpyAsync", cat="cuda_runtime", correlation=place + 1)
        copy = kernel(begin, 320, name=_COPIES[place % 2], cat="gpu_memcpy", correlation=place + 1, bytes=8 << 20)
        events += [call, copy]
    write(tmp_path / "rank0.json", document(events))
    said = said_of(*ta.load(tmp_path))
    of_copies = [each for each in said if each.table == "copies"]
    assert len(of_copies) > 0
    assert all(each.title.endswith("what they can gain cannot be told.") for each in of_copies)
    assert all(each.gain_ns is None and "computed" not in each.recommendation for each in of_copies)
    assert "launch_loops" not in {each.table for each in said}
