"""The timeline leads to the answer: who stands on top, what a wait waited for, the host, the critical path, groups."""

import pytest

from tests.browser.frames import settled
from tests.simulator import scenarios
from tests.simulator.analysed import analysed, repeated
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.findings import find
from traceanalyzer.report import Report
from traceanalyzer.report.rows import Box, Picture, Row
from traceanalyzer.report.writers import html

pytestmark = pytest.mark.browser

ROWS = "() => TA.view.layout.rows.map(r => [r.part, r.rank ? r.rank.rank : r.group.name])"

LONGEST_WAIT = """number => { const r = TA.view.data.rankOf.get(number); let best = -1;
for (let i = 0; i < r.count; i++) if (TA.view.data.names[r.name[i]][2] === 'comm'
  && (best < 0 || r.wait[i] > r.wait[best])) best = i;
return [best, r.start[best], r.wait[best] - 1]; }"""

PLACE = """([number, part, t]) => { const v = TA.view, row = v.layout.rows.find(r => r.rank?.rank === number && r.part === part);
const box = document.getElementById('tl-canvas').getBoundingClientRect();
return [box.left + TA.xOf(v, t), box.top + TA.AXIS + row.y + row.height / 2 - v.scroll]; }"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Pages of a data-parallel job in which one rank in the first third computes longer."""
    made = {}

    def of(ranks):
        if ranks not in made:
            names = list(ANALYSES)
            own = min(ranks, 16) if ranks > 24 else ranks  # of hundreds the first are simulated, and repeated
            _, results = analysed(scenarios.ddp(own, 3, 4, slow_compute_ns={own // 3: 400_000}), *names)
            findings = find(results, [])
            report = Report(f"{ranks} ranks", repeated(results, ranks // own), findings, version="test")
            made[ranks] = html.write(report, tmp_path_factory.mktemp(f"ranks{ranks}"), failures=[])[0]
        return made[ranks]

    return of


def test_it_opens_on_one_step(written, opened):
    report, path = written("ddp")
    steps = report.results["steps"].to_frame()
    own = steps[steps["step"] == steps.loc[steps["is_complete"].fillna(value=False), "step"].min()]
    zero = report.results["timeline"].table["start_ns"].min()
    with opened(path) as page:
        assert page.evaluate("() => TA.view.step") == own["step"].iloc[0]
        t0, t1 = page.evaluate("() => [TA.view.t0, TA.view.t1]")
        assert t0 == own["start_ns"].min() - zero
        assert t1 == (own["start_ns"] + own["window_ns"]).max() - zero


def test_from_four_ranks_on_the_late_one_and_who_waits_most_are_on_top_and_the_others_collapsed(simulated, opened):
    with opened(simulated(8)) as page:
        rows = page.evaluate(ROWS)
        tops = list(dict.fromkeys(rank for part, rank in rows if part != "folded"))
        assert tops[0] == 2
        assert len(tops) == 2
        assert sorted(rank for part, rank in rows if part == "folded") == sorted(set(range(8)) - set(tops))
        heads = page.evaluate("() => TA.view.layout.rows.filter(r => r.head).map(r => r.why)")
        assert heads == ["straggler: compute", "waits most"]


def test_a_click_on_a_wait_shows_what_the_awaited_rank_did(simulated, opened):
    with opened(simulated(8)) as page:
        op, start, wait = page.evaluate(LONGEST_WAIT, 5)
        page.evaluate("([t0, t1]) => TA.go({ ranks: [5], from: t0, to: t1 })", [start, start + wait])
        settled(page)
        page.mouse.click(*page.evaluate(PLACE, [5, "comm", start + wait / 3]))
        page.wait_for_function("() => TA.view.awaited")
        awaited = page.evaluate("() => [TA.view.awaited.rank.rank, TA.view.awaited.from, TA.view.awaited.to]")
        assert awaited[:2] == [2, start]
        assert awaited[2] == pytest.approx(start + wait, abs=50_000)
        said = page.locator(".tl-awaited").inner_text()
        assert "rank 2 had: compute" in said
        assert "extra_gemm" in said
        assert "Came last\nrank 2" in page.locator("#tl-details").inner_text()
        assert page.evaluate(
            "([r, o]) => TA.isLast(TA.view.data, TA.view.data.rankOf.get(2), TA.view.awaited.op)", [0, op]
        )


def test_a_finding_an_address_and_keys_lead_to_the_rank(simulated, opened):
    path = simulated(8)
    with opened(path) as page:
        page.click("[data-do=fold]")  # expand all, collapse all: whatever was folded is shown
        page.click("[data-do=fold]")
        assert all(part == "folded" for part, _ in page.evaluate(ROWS))
        page.locator(".show-interval").first.click()
        settled(page)
        assert ["compute", 2] in page.evaluate(ROWS)
        page.evaluate("() => { location.hash = '#timeline?rank=6&step=1'; }")
        settled(page)
        assert ["compute", 6] in page.evaluate(ROWS)
        assert page.evaluate("() => TA.view.step") == 1
        page.locator("#tl-canvas").focus()
        for _ in range(25):
            page.keyboard.press("ArrowUp")
        seen = {page.evaluate("() => TA.view.focus")}
        for _ in range(25):
            page.keyboard.press("ArrowDown")
            seen.add(page.evaluate("() => TA.view.focus"))
        assert len(seen) == len(page.evaluate(ROWS))
        last = page.evaluate("() => TA.view.layout.rows.at(-1).rank.rank")
        page.keyboard.press("Enter")
        assert ["compute", last] in page.evaluate(ROWS)


@pytest.mark.thorough
def test_many_ranks_lie_in_groups_that_are_opened(simulated, opened):
    with opened(simulated(24)) as page:
        groups = [name for part, name in page.evaluate(ROWS) if part == "group"]
        assert groups == [f"node {at}" for at in range(3)]
        assert {rank for part, rank in page.evaluate(ROWS) if part != "group"} >= {8}
        page.evaluate("() => { location.hash = '#timeline?rank=20'; }")
        settled(page)
        assert ["compute", 20] in page.evaluate(ROWS)
        row = page.evaluate(
            "() => { const r = TA.view.layout.rows.find(r => r.part === 'group'); return r.y + TA.AXIS - TA.view.scroll + 8; }"
        )
        box = page.locator("#tl-canvas").bounding_box()
        page.mouse.click(box["x"] + 20, box["y"] + row)
        assert ["folded", 0] in page.evaluate(ROWS)


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [64, 512])
def test_of_hundreds_of_ranks_the_late_one_is_on_top_and_each_is_a_click_away(ranks, simulated, opened):
    path = simulated(ranks)
    assert path.stat().st_size < 2e6
    with opened(path) as page:
        rows = page.evaluate(ROWS)
        assert next(rank for part, rank in rows if part == "compute") == 5
        assert sum(part == "group" for part, _ in rows) == ranks // 8
        assert page.locator(".heat .bar").count() > 2
        assert page.locator(".bars .bar").count() < 20
        page.evaluate("number => { location.hash = `#timeline?rank=${number}&step=1`; }", ranks - 2)
        page.wait_for_function(
            "number => TA.view.layout.rows.some(r => r.part === 'compute' && r.rank.rank === number)", arg=ranks - 2
        )
        drawn = page.evaluate(
            "() => { const t = performance.now(); TA.draw(TA.view.ctx, TA.view); return performance.now() - t; }"
        )
        assert drawn < 1000
        page.emulate_media(media="print")
        page.wait_for_function("() => TA.view.isPrinted")
        assert all(part in ("folded", "group") for part, _ in page.evaluate(ROWS))
        page.emulate_media(media="screen")
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_host_and_the_counters_are_drawn_where_they_were_recorded(written, opened):
    report, path = written("nsys_fsdp_grad_metrics")
    with opened(path) as page:
        lanes = page.evaluate("() => TA.view.data.ranks.map(r => r.host.map(l => [l.role, l.count]))")
        table = report.results["host_events"].table
        for rank, own in zip(report.results["ranks"].table["rank"], lanes, strict=True):
            held = table[table["rank"] == rank]
            assert {role for role, _ in own} == set(held["role"])
            assert sum(count for _, count in own) == len(held)
        assert not page.evaluate("() => TA.view.layout.rows.some(r => r.part === 'counter')")
        page.check("[data-show=counters]")
        names = page.evaluate("() => TA.view.layout.rows.filter(r => r.part === 'counter').map(r => r.counter.name)")
        assert {"launch queue", "SMs active", "tensor cores active", "DRAM read", "NVLink sent", "PCIe sent"} <= set(
            names
        )
        assert not page.evaluate("() => TA.view.layout.rows.some(r => r.part === 'host')")
        page.check("[data-show=host]")
        assert page.evaluate("() => TA.view.layout.rows.some(r => r.part === 'host')")


def test_an_operation_is_tied_to_its_launch_on_the_host(written, opened):
    report, path = written("ddp")
    table = report.results["timeline"].table
    with opened(path) as page:
        threads = page.evaluate(
            "() => TA.view.data.ranks.map(r => [...r.thread].map(t => TA.view.data.threads[t] || null))"
        )
        for rank, own in enumerate(threads):
            wanted = table.loc[table["rank"] == rank, "launch_thread"]
            assert own == [
                None if value is None else int(value) for value in wanted.astype(object).where(wanted.notna(), None)
            ]


def test_the_critical_path_is_the_replays(written, opened):
    report, path = written("ddp_straggler")
    stretches = report.results["path_stretches"].to_frame()
    with opened(path) as page:
        drawn = page.evaluate(
            "() => { const p = TA.view.data.path; return [p.count, [...p.length].reduce((a, b) => a + b, 0), p.shares]; }"
        )
        assert drawn[1] == int((stretches["end_ns"] - stretches["start_ns"]).sum())
        assert drawn[2][0][0] == 1
        assert page.locator("#tl-path").inner_text().startswith("Critical path: 100% on rank 1")


def test_where_nothing_is_replayed_the_page_says_why(written, opened, tmp_path):
    report, _ = written("ddp")
    left = {name: result for name, result in report.results.items() if name not in ("path_stretches", "replay")}
    with opened(html.write(Report("x", left, version="test"), tmp_path)[0]) as page:
        assert page.locator("#tl-path").inner_text() == "No critical path is drawn: the job was not replayed."


def test_on_paper_every_rank_is_collapsed(simulated, opened):
    with opened(simulated(8)) as page:
        before = page.evaluate(ROWS)
        page.emulate_media(media="print")
        page.wait_for_function("() => TA.view.isPrinted")
        assert [part for part, _ in page.evaluate(ROWS)] == ["folded"] * 8
        page.emulate_media(media="screen")
        page.wait_for_function("() => !TA.view.isPrinted")
        assert page.evaluate(ROWS) == before


def test_a_schedule_of_16_microbatches_fits_a_phone(written, opened, tmp_path, monkeypatch):
    report, _ = written("pp")
    blocks = tuple(Box(3.1 * at, 3.0, ("forward", "compute")[at % 2], f"{at}", str(at // 2)) for at in range(32))
    made = Picture("Schedule", "", tuple(Row(f"stage {stage}", blocks, "47.4% bubble") for stage in (0, 1)))
    monkeypatch.setattr(html.rows, "schedule", lambda *_: made)
    with opened(html.write(report, tmp_path)[0]) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.locator(".pipeline_schedule .bar").count() == 2
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_click_in_the_chart_of_steps_shows_the_step_in_the_timeline_and_marks_it_in_tables(written, opened):
    _, path = written("ddp")
    with opened(path) as page:
        page.locator(".step-chart summary").click()
        column = page.locator(".step-chart g[data-step='3']")
        column.click()
        page.wait_for_function("() => TA.view.step === 3")
        assert "chosen" in column.get_attribute("class")
        page.locator(
            "#tl-window-title", has_text="In view: step 3 of all ranks"
        ).wait_for()  # drawn with the next frame
        marked = page.evaluate(
            "() => [...document.querySelectorAll(\".table[data-name='steps'] tr.of-step\")].map(r => r.cells[1].textContent)"
        )
        assert set(marked) == {"3"}
        page.locator(".step-chart g[data-step='2']").focus()
        page.keyboard.press("Enter")
        page.wait_for_function("() => TA.view.step === 2")


def test_a_search_finds_what_the_host_did(written, opened):
    report, path = written("ddp")
    names = report.results["host_events"].table["name"].astype("str")
    with opened(path) as page:
        page.fill("#tl-search", "cudaMemcpyAsync")
        count = names.str.contains("cudaMemcpyAsync", case=False).sum()
        assert count > 1
        assert page.locator("#tl-found").text_content().endswith(f"; on the CPU {count:,} events")
