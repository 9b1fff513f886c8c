"""What a report says first of each case, beside the truth: `python -m tests.simulator.scoreboard [name]`."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import traceanalyzer as ta
from tests.asked import ASKED
from tests.findings.named_in_words import unlike_words
from tests.simulator import kineto, nsys
from tests.simulator.capture import capture
from tests.simulator.case import Case, recorded
from tests.simulator.cases import EVERY_CASE
from tests.simulator.engine import run
from traceanalyzer.analyses import run as run_analyses
from traceanalyzer.findings import Finding, find
from traceanalyzer.report import words as report_words
from traceanalyzer.report.contents import Report

GAIN_TOLERANCE = 0.05
_LEAST_GAIN_NS = 100_000
_LEAST_COST_PCT = 2.0


@dataclass(frozen=True)
class Judged:
    """A case, the first line of its report, what is advised first, and what is wrong with it (nothing, if right)."""

    case: Case
    line: str
    first: Finding | None
    wrong: tuple[str, ...]


def judged(case: Case) -> Judged:
    """Run, record, read back, analyse, and hold against the truth."""
    report = report_of(case)
    line = first_line(report)
    return Judged(case, line, _first_advice(case, report), tuple(_wrong(case, report)))


def report_of(case: Case) -> Report:
    """The report of the case's files."""
    truth = run(case.job(case.faults))
    with tempfile.TemporaryDirectory() as folder:
        write = nsys.write_reports if case.by == "nsys" else kineto.write
        write(capture(truth, recorded(case, truth)), Path(folder))
        if case.spoil:
            case.spoil(Path(folder))
        traces = ta.load(folder)
    known = {"unprofiled_step_ns": case.step_ns()} if case.truth.is_gained else {}
    results = run_analyses(traces.ranks, ASKED, **known)
    return Report(traces.label, results, find(results), traces.skipped, traces.notes)


def first_line(report: Report) -> str:
    """The first finding in words, or what the terminal says without one."""
    if report.findings:
        return report.findings[0].text
    return " ".join(report_words.sentences(report, report_words.split(report.results)))


def _wrong(case: Case, report: Report) -> list[str]:
    truth = case.truth
    wrong = [
        f"names {item.ranks}: {item.headline}"
        for item in _blaming(report)
        if not {*item.ranks} <= {*truth.ranks, *truth.others}
    ]
    wrong += unlike_words(report.findings)
    wrong += [f"table stragglers: rank {rank} first" for rank in _awaited_most(report) - {*truth.ranks, *truth.others}]
    first = _first_advice(case, report)
    kinds = truth.kinds.split()
    about_capture = {item.kind for item in report.findings if item.is_about_capture}
    if kinds and not ({first.kind if first else None} | about_capture) & {*kinds}:
        wrong.append(f"{first.kind if first else 'nothing'} first, not {truth.kinds}")
    if truth.is_gained:
        wrong += _wrong_gain(case, first) if first else ["says nothing"]
    if truth.ranks:
        wrong += _wrong_first(case, first) if first else [] if truth.is_small else ["says nothing"]
    return wrong


def _first_advice(case: Case, report: Report) -> Finding | None:
    """The first finding about the job: one that leads, else a fact.

    What happened in one step may not recur, so that what recurs leads; what saves less for sure comes behind, too: then
    the first that names the ranks.
    """
    every = [item for item in report.findings if not item.is_about_capture and not item.is_nothing]
    is_behind = case.truth.is_behind or (case.truth.steps is not None and len(case.truth.steps) == 1)
    return next((item for item in every if not is_behind or (item.ranks and item.steps == case.truth.steps)), None)


def _blaming(report: Report) -> list[Finding]:
    """Findings that hold ranks to be stragglers, and lead."""
    every = [item for finding in report.findings for item in (finding, *finding.also)]
    return [item for item in every if item.ranks and not item.is_nothing]


def _awaited_most(report: Report) -> set[int]:
    """The rank for which others wait most, if it is of an episode: of that kind, tables and sentences say the same."""
    table = report.results["stragglers"].to_frame()
    first = table[table["episode"].notna() & (table["cost_pct"] >= _LEAST_COST_PCT)].head(1)
    return {int(rank) for rank in first["rank"]}


def _wrong_first(case: Case, first: Finding) -> list[str]:
    truth = case.truth
    words = " ".join([first.text, str(first.evidence), *(f"{item.text} {item.evidence}" for item in first.also)])
    wrong = []
    if first.ranks != truth.ranks:
        wrong.append(f"ranks {first.ranks}, not {truth.ranks}")
    if first.cause != truth.cause:
        wrong.append(f"cause {first.cause}, not {truth.cause}")
    if truth.what not in words:
        wrong.append(f"does not name {truth.what}")
    if truth.steps and first.steps != truth.steps:
        wrong.append(f"steps {first.steps}, not {truth.steps}")
    return wrong + _wrong_gain(case, first)


def _wrong_gain(case: Case, first: Finding) -> list[str]:
    """The true gain lies outside the finding's interval, by more than the tolerance."""
    if not case.truth.has_gain or first.saves is None:
        return []
    true_ns, saves = case.gain_ns(), first.saves
    off_ns = max(saves.low_ns - true_ns, true_ns - saves.high_ns)
    if off_ns <= max(GAIN_TOLERANCE * true_ns, _LEAST_GAIN_NS):
        return []
    return [f"saves {saves.low_ns / 1e6:.3g} to {saves.high_ns / 1e6:.3g} ms, truly {true_ns / 1e6:.3g}"]


def main() -> None:
    """Print a row for each case, and how many are right."""
    chosen = [case for case in EVERY_CASE if not sys.argv[1:] or any(text in case.name for text in sys.argv[1:])]
    right = 0
    for case in chosen:
        result = judged(case)
        right += not result.wrong
        print(f"{'ok   ' if not result.wrong else 'WRONG'} {case.name}")
        print(f"      truth: {_told(case)}\n      says:  {result.line}")
        for text in result.wrong:
            print(f"      wrong: {text}")
    print(f"{right} of {len(chosen)} right")


def _told(case: Case) -> str:
    truth = case.truth
    if not truth.ranks:
        return f"nobody: {truth.kinds!r}"
    when = "every step" if truth.steps is None else f"steps {', '.join(map(str, truth.steps))}"
    gain = f"{case.gain_ns() / 1e6:.3g} ms a step" if truth.has_gain else "gain not told"
    return f"ranks {', '.join(map(str, truth.ranks))} by {truth.cause} ({truth.what}), {when}, {gain}"


if __name__ == "__main__":
    main()
