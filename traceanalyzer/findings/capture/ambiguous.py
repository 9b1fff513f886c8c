"""Communication of calls that are all alike: which of them are one collective, and who waits, cannot be told."""

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, plain
from traceanalyzer.findings.capture.unmatched import LEAST_PCT
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import only


def ambiguous_calls(
    headline: Headline, steps: Steps, call_waits: CallWaits, exposed_calls: Result, *, unmatched_pct: float = LEAST_PCT
) -> list[Finding]:
    """Over 10 % of a capture without steps is exposed communication of calls that may be paired otherwise.

    They are alike and come at like distances, as in decoding without marked iterations: who is late is not told.
    """
    if not len(headline) or not len(call_waits) or not len(exposed_calls):
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is not None:
        return []
    calls = only(call_waits.table, ["rank", "call", "is_ambiguous"])
    held = basis.within(exposed_calls.to_frame()).merge(calls, on=["rank", "call"])
    open_ns = held["unmatched_ns"].astype("float64").where(is_true(held["is_ambiguous"]), 0.0)
    each = open_ns.groupby(held["rank"]).sum().reindex(headline.table["rank"], fill_value=0.0)
    whole_ns = float(basis.window_ns.mean())
    share = 100 * float(each.mean()) / whole_ns if whole_ns else 0.0
    if share < unmatched_pct:
        return []
    count, of = int(is_true(call_waits.table["is_ambiguous"]).sum()), len(call_waits.table)
    open_for = f"{time_text(float(each.mean()))} {basis.of_a_step}, {share:.0f} % of it on average"
    return [
        Finding(
            severity="low",
            title=f"{count:,} of {of:,} communication calls are alike and come at like distances: for {open_for}, it "
            "cannot be told whether they move data or wait, nor for whom.",
            evidence=plain(each.rename("unknown_ns").round().astype("int64").reset_index()),
            recommendation='Mark steps or iterations on every rank (the profiler\'s step(), record_function("step 7"), '
            "NVTX ranges; --step-range names such ranges): calls are then told by their order in a step.",
            table="call_waits",
        )
    ]
