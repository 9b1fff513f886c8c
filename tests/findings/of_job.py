"""What one kind of finding says of a simulated job."""

import tempfile
from pathlib import Path

import traceanalyzer as ta
from tests.asked import ASKED
from tests.simulator import Job, kineto
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run
from traceanalyzer.analyses import Results
from traceanalyzer.analyses import run as analysed
from traceanalyzer.findings import Finding, find


def said(job: Job, kind: str) -> list[Finding]:
    """The kind's findings, signs of others included; those that save nothing are left out."""
    every = (each for finding in find(results_of(job)) for each in (finding, *finding.also))
    return [each for each in every if each.kind == kind and not each.is_nothing]


def results_of(job: Job) -> Results:
    """All that is computed of it."""
    with tempfile.TemporaryDirectory() as folder:
        kineto.write(capture(run(job), Capture()), Path(folder))
        return analysed(ta.load(folder).ranks, ASKED)
