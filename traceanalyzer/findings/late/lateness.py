"""Ranks that make the others wait: one finding for each episode, those of the same ranks in one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.episode_rows import is_of_every_host
from traceanalyzer.analyses.blame.episodes import WORTH_PCT, Episodes
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.transfers import collective_of
from traceanalyzer.analyses.experts.expert_layers import ExpertLayers
from traceanalyzer.analyses.host.host_work import HostWork
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import EVEN, Change
from traceanalyzer.analyses.replay.even_experts import EvenExperts
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import MOSTLY, Basis, lower, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.beside import MORE, SLOWER, of_as_many_steps
from traceanalyzer.findings.late.evened import Evened, evened
from traceanalyzer.findings.late.gain_range import how_far
from traceanalyzer.findings.late.heavy_stages import UNEVEN_STAGES, even_gain
from traceanalyzer.findings.late.late_advice import OF_HOST, advice, caveat
from traceanalyzer.findings.late.late_hosts import Unlike, with_advice
from traceanalyzer.findings.late.late_sets import joint_ns, set_of, told, with_other_causes
from traceanalyzer.findings.late.late_words import beside_late, is_of_hosts, title, who, whole_ns
from traceanalyzer.findings.late.when import Recorded
from traceanalyzer.findings.won import Won
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES
from traceanalyzer.model.tables import only, rows_where

_MOST_FINDINGS = 5

_MOST_PCT = 50.0
"""Of all compared steps' time: what is waited for so long is as grave as that, though no complete step gains by it."""

_MOVED = "Move layers from the stage of {who} to the others: its host launches for more of them."


def late_ranks(
    episodes: Episodes,
    headline: Headline,
    steps: Steps,
    step_needs: StepNeeds,
    expert_layers: ExpertLayers,
    even_experts: EvenExperts,
    replay: Replay,
    operators: Operators,
    host_work: HostWork,
    pipeline: Pipeline,
    *,
    late_gain_pct: float = WORTH_PCT,
    slow_host_times: float = SLOWER,
    busy_host_times: float = MORE,
    uneven_stages_times: float = UNEVEN_STAGES,
) -> list[Finding]:
    """Each episode whose mending gains at least 1 % of a step, or whose gain is not known; the five costliest.

    Episodes that hide each other are one finding: of all of them where none gains half of that alone, else of the
    first, the others behind it.

    Hosts of which others need as long are nobody's fault: the rule about hosts speaks of them all.
    Experts' tokens that leave a rank go to the others: its gain is then what an even load gains; so are layers of a
    stage whose host launches for more of them. Where ranks compute
    each another amount, what dealing it out evenly gains is part of the advice.
    """
    numbered = step_needs.table["step"].dropna() if len(step_needs) else list[int]()
    complete = Basis.of(headline, steps).numbers if len(headline) else ()
    recorded = Recorded(complete, int(max(numbered)) if len(numbered) else None)
    saved = {each.hot_rank: each for each in evened(expert_layers.to_frame(), even_experts.to_frame()).values()}
    unlike = Unlike(slow_host_times, busy_host_times)
    operators = of_as_many_steps(operators, step_needs.table)
    rows = []
    for row in said(replace(episodes, worth_pct=late_gain_pct)):
        even = even_gain(row, pipeline, operators, replay, uneven_times=uneven_stages_times, busy_times=busy_host_times)
        rows.append(_evened(with_advice(row, operators, host_work, unlike), saved, even))
    rows.sort(key=lambda row: (-max(_expected_ns(row) or 0, joint_ns(row)), row["place_in_set"] or 0))
    found = [
        told(_with(_finding(row, rows, step_needs.to_frame(), recorded), how_far(row, replay)), row, rows, recorded)
        for row in rows[:_MOST_FINDINGS]
    ]
    return [
        with_other_causes(_dealt_out(item, replay) if _is_graded(item) else item, row, rows, replay)
        for item, row in zip(found, rows, strict=False)
    ]


def _with(finding: Finding, said: str) -> Finding:
    """With a sentence more among its caveats."""
    return replace(finding, caveat=" ".join(filter(None, (finding.caveat, said))) or None)


def _is_graded(finding: Finding) -> bool:
    return finding.cause == "compute" and finding.worst_rank is not None


def _dealt_out(finding: Finding, replay: Replay) -> Finding:
    """With what even compute gains, where it gains something."""
    gain = gain_of(replay, Change("compute", EVEN))
    if gain is None or not gain.gain_ns:
        return finding
    about = "" if gain.is_bound else "about "
    even = f"Dealt out evenly over all ranks, {gain.whole} is {about}{Won.recorded(gain)}."
    return replace(finding, recommendation=f"{finding.recommendation} {even}")


def _evened(row: Mapping[str, Any], saved: Mapping[int, Evened], stages: Gain | None) -> Mapping[str, Any]:
    """The row with the gain of an even load of experts, or of even stages, where that is what its ranks have more of.

    Without a replay experts' is a bound, which is said where it is less.
    """
    if stages is not None:
        return {**row, OF_HOST: _MOVED.format(who=who(row)), "gain_ns": stages.gain_ns,
                "gain_error_ns": stages.error_ns, "gain_is_bound": stages.is_bound,
                "unprofiled_gain_ns": None if stages.is_bound else stages.unprofiled_gain_ns}  # fmt: skip
    ranks, gain = numbers(row["ranks"]), row["gain_ns"]
    even = saved.get(ranks[0]) if saved.keys() >= {*ranks} and row["cause"] == "compute" else None
    if gain is None or even is None or (even.gain_ns >= gain and not even.is_replayed):
        return row
    return {**row, "gain_ns": even.gain_ns, "gain_error_ns": even.error_ns, "gain_is_bound": even.is_bound,
            "unprofiled_gain_ns": None}  # fmt: skip


def said(episodes: Episodes) -> list[Mapping[str, Any]]:
    """Rows of lateness that is the ranks' own, and worth mending by what a user asks for: all rules ask this one."""
    return [row for row in episodes.rows() if is_said(row, episodes.worth_pct)]


def is_said(row: Mapping[str, Any], least_pct: float) -> bool:
    """Whether the lateness is these ranks' own, and mending it worth anything, with what hides it or alone.

    What no complete step holds has no gain: it is worth what the others wait for it, of all steps.
    """
    if is_of_every_host(row):
        return False
    expected = _expected_ns(row)
    pct = _waited_pct(row) if expected is None else 100 * max(expected, joint_ns(row)) / max(whole_ns(row), 1)
    return pct >= least_pct


def _waited_pct(row: Mapping[str, Any]) -> float:
    """Of all compared steps what the others wait for an episode that is in one that is not complete."""
    return 100 * float(row["cost_ns"]) / row["steps"] / max(row["step_ns"], 1)


def _expected_ns(row: Mapping[str, Any]) -> int | None:
    """What mending it gains, without what recording takes the hosts where that is known."""
    gain: int | None = row["gain_ns"] if row["unprofiled_gain_ns"] is None else row["unprofiled_gain_ns"]
    return gain


def of_ranks(row: Mapping[str, Any]) -> str:
    """How findings about the same late ranks call them."""
    return f"lateness of ranks {row['ranks']}"


def late_by(episodes: Episodes, rank: int, *causes: str) -> str | None:
    """What is said of a rank's lateness by one of these causes, as findings call it; `None` without a known gain."""
    rows = (row for row in said_with_gain(episodes) if row["cause"] in causes and rank in numbers(row["ranks"]))
    first = next(rows, None)
    return None if first is None else of_lead(episodes, first)


def said_with_gain(episodes: Episodes) -> list[Mapping[str, Any]]:
    """Rows of lateness that is said and whose gain is known."""
    return [row for row in said(episodes) if row["gain_ns"] is not None]


def of_lead(episodes: Episodes, row: Mapping[str, Any]) -> str:
    """How findings call what leads the episodes that hide each other, this one among them; itself without such."""
    return of_ranks(set_of(row, said(episodes) or [row])[0])


def of_slow_links(episodes: Episodes, collective: str, gain_ns: int) -> str | None:
    """What is said of groups whose calls of a collective take longer than their sister groups', as findings call it.

    `None` where there are none, or mending them gains less than most of what the collective would gain altogether.
    """
    called = collective_words(collective)
    for row in said_with_gain(episodes):
        is_slow = row["cause"] == "transfer" and collective_of(row["name"] or "") == called
        if is_slow and max(row["gain_ns"], row["joint_gain_ns"] or 0) >= MOSTLY * gain_ns:
            return of_lead(episodes, row)
    return None


def all_late_by(episodes: Episodes, ranks: Iterable[int], *causes: str) -> str | None:
    """The same of several ranks, where it is one for all of them."""
    found = {late_by(episodes, int(rank), *causes) for rank in ranks}
    return found.pop() if len(found) == 1 else None


def _finding(
    row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], needs: pd.DataFrame, recorded: Recorded
) -> Finding:
    gain, expected = row["gain_ns"], _expected_ns(row)
    share = _waited_pct(row) if expected is None else 100 * expected / whole_ns(row)
    return Finding(
        severity=lower(severity(share)) if gain is None and share < _MOST_PCT else severity(share),
        title=title(row, recorded),
        evidence=_evidence(row, needs),
        recommendation=advice(row),
        caveat=caveat(row),
        gain_ns=gain,
        gain_error_ns=row["gain_error_ns"],
        gain_is_bound=bool(row["gain_is_bound"]),
        unprofiled_gain_ns=row["unprofiled_gain_ns"],
        is_of_hosts=is_of_hosts(row),
        ranks=numbers(row["ranks"]),
        named=beside_late(row),
        worst_rank=row["worst_rank"],
        steps=None if row["is_in_every_step"] else numbers(row["numbers"]) or None,
        cause=row["cause"],
        interval_ns=_interval(row, needs),
        table="episodes",
        about=of_ranks(row),
        part_of=of_ranks(set_of(row, rows)[0]),
    )


def _of_steps(row: Mapping[str, Any], needs: pd.DataFrame) -> pd.DataFrame:
    steps = numbers(row["numbers"])
    return rows_where(needs, needs["step"].isin(steps)) if steps else needs


_SHOWN = ["step", "rank", "compute_ns", "exposed_copy_ns", *(cause.column for cause in IDLE_CAUSES), "exposed_wait_ns",
          "exposed_unmatched_ns"]  # fmt: skip
_MOST_ROWS = 12


def _evidence(row: Mapping[str, Any], needs: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """Step by step the first of the late ranks beside the one that waits most."""
    held = _of_steps(row, needs)
    own = numbers(row["ranks"])
    waited = rows_where(held, ~held["rank"].isin(own)).groupby("rank")["exposed_wait_ns"].sum()
    beside = [own[0], *([int(waited.idxmax())] if len(waited) else [])]
    return plain(
        only(rows_where(held, held["rank"].isin(beside)).sort_values(["step", "rank"]), _SHOWN).head(_MOST_ROWS)
    )


def _interval(row: Mapping[str, Any], needs: pd.DataFrame) -> tuple[int, int] | None:
    """The first step of the episode on its first rank."""
    held = _of_steps(row, needs)
    own = rows_where(held, held["rank"] == numbers(row["ranks"])[0])
    return None if own.empty else (int(own["begin_ns"].iloc[0]), int(own["end_ns"].iloc[0]))


def stages(pipeline: Pipeline) -> Mapping[int, int]:
    """Which pipeline each rank is a stage of."""
    return dict(pipeline.table[["rank", "pipeline"]].itertuples(index=False))
