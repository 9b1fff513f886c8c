"""The page in Chromium: it paints, its policy holds, and what a reader does gives the JSON's figures."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.browser.frames import settled
from tests.builders import document, kernel, write
from tests.conftest import sampled
from tests.report.writers.test_html import HOSTILE
from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.cli import run as command
from traceanalyzer.export import perfetto

pytestmark = pytest.mark.browser

PAINTED = """() => { const c = document.getElementById('tl-canvas');
const copy = Object.assign(document.createElement('canvas'), {width: c.width, height: c.height});
const drawn = copy.getContext('2d', {willReadFrequently: true}); drawn.drawImage(c, 0, 0);
const d = drawn.getImageData(0, 0, c.width, c.height).data, seen = new Set();
for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return [...seen]; }"""

IN_VIEW = """() => { const heads = [...document.querySelectorAll('#tl-window thead th')].map(th => th.textContent);
return [...document.querySelectorAll('#tl-window tbody tr')].map(
row => Object.fromEntries([...row.cells].slice(1).map((cell, i) => [heads[i + 1], Number(cell.dataset.v)]))); }"""

UNMATCHED = (0xE6, 0xC2, 0x29)
"""Communication whose transfer and wait are not told apart."""

KINDS = {"compute": (0, 0x72, 0xB2), "comm": (0x56, 0xB4, 0xE9), "copy": (0, 0x9E, 0x73)}

COLUMNS = {
    "time": "window_ns", "compute": "compute_ns", "exposed copy": "exposed_copy_ns", "idle": "idle_ns",
    "exposed transfer": "exposed_transfer_ns", "exposed wait": "exposed_wait_ns",
    "exposed, unattributed": "exposed_unmatched_ns",
}  # fmt: skip


def column(page, name, at):
    return page.evaluate(
        "([name, at]) => [...document.querySelectorAll(`.table[data-name='${name}'] tbody tr`)]"
        ".filter(row => !row.hidden).map(row => row.cells[at].dataset.v ?? row.cells[at].textContent)",
        [name, at],
    )


def unfold(page, name):
    """Open the fold that holds it, and go there."""
    page.evaluate("name => { document.getElementById(name).closest('details').open = true; }", name)
    page.locator(f"#{name}").scroll_into_view_if_needed()


@pytest.mark.parametrize("name", sampled(["ddp", "ddp_straggler", "pp", "fsdp_full", "moe", "streams"], every=6))
def test_the_timeline_is_painted_in_the_colours_of_its_kinds(name, written, opened):
    report, path = written(name)
    with opened(path) as page:
        colours = [(colour >> 16, colour >> 8 & 255, colour & 255) for colour in page.evaluate(PAINTED)]
        for kind in report.results["timeline"].table["kind"].astype("str").unique():
            wanted = [KINDS[kind], *([UNMATCHED] if kind == "comm" else [])]
            assert any(on_the_way(colour, each) for colour in colours for each in wanted), kind


def on_the_way(colour, kind):
    """Whether a colour is white mixed with at least a tenth of the kind's: what is short is drawn faint."""
    shares = [(255 - seen) / (255 - full) for seen, full in zip(colour, kind, strict=True)]
    return shares[0] > 0.1 and max(shares) - min(shares) < 0.03


def test_the_view_has_the_breakdown_of_the_json_whole_and_zoomed_to_a_step_of_one_rank(written, opened):
    report, path = written("ddp")
    start = min(row["window_start_ns"] for row in report.results["ranks"].rows())
    with opened(path) as page:
        page.click("[data-do=whole]")
        settled(page)
        comm = [row for row in report.results["exposed_comm"].rows() if row["step"] is None]
        rows = [row | detail for row, detail in zip(report.results["breakdown"].rows(), comm, strict=True)]
        assert page.evaluate(IN_VIEW) == [{text: row[name] for text, name in COLUMNS.items()} for row in rows]
        comm = {(row["rank"], row["step"]): row for row in report.results["exposed_comm"].rows()}
        for row in [row for row in report.results["steps"].rows() if row["is_complete"]]:
            expected = row | comm[row["rank"], row["step"]]
            begin, end = row["start_ns"] - start, row["start_ns"] - start + row["window_ns"]
            page.evaluate("([t0, t1]) => TA.showTimeline(t0, t1)", [begin, end])
            settled(page)
            seen = page.evaluate(IN_VIEW)[row["rank"]]
            # A column that is rare stands only where it has something.
            assert {text: seen.get(text, 0) for text in COLUMNS} == {
                text: expected[name] for text, name in COLUMNS.items()
            }


@pytest.mark.parametrize("name", ["ddp", pytest.param("pp", marks=pytest.mark.thorough)])
def test_one_step_has_each_ranks_own_step_in_the_table(name, written, opened):
    report, path = written(name)
    comm = {(row["rank"], row["step"]): row for row in report.results["exposed_comm"].rows()}
    steps = [row | comm[row["rank"], row["step"]] for row in report.results["steps"].rows() if row["step"] == 2]
    with opened(path) as page:
        page.click("[data-do=step]")
        settled(page)
        seen = page.evaluate(IN_VIEW)
        shown = {text: column for text, column in COLUMNS.items() if text in seen[0]}
        assert len(shown) >= 6
        assert seen == [{text: row[column] for text, column in shown.items()} for row in steps]


def test_hovering_and_clicking_an_operation_gives_its_figures(written, opened):
    report, path = written("ddp")
    table = report.results["timeline"].table
    start = table["start_ns"].min()
    longest = table[(table["rank"] == 1) & (table["kind"] == "comm")].assign(ns=lambda t: t["end_ns"] - t["start_ns"])
    longest = longest.loc[longest["ns"].idxmax()]
    with opened(path) as page:
        middle = int(longest["start_ns"] - start + longest["ns"] // 2)
        page.evaluate("t => TA.showTimeline(t - 5e6, t + 5e6)", middle)
        settled(page)
        at = page.evaluate(
            """t => { const v = TA.view, row = v.layout.rows.find(r => r.rank.rank === 1 && r.part === 'comm');
            const box = document.getElementById('tl-canvas').getBoundingClientRect();
            return [box.left + v.left + (t - v.t0) * (v.width - v.left) / (v.t1 - v.t0),
                    box.top + TA.AXIS + row.y + row.height / 2 - v.scroll]; }""",
            middle,
        )
        page.mouse.move(*at)
        tip = page.locator("#tl .tl-tip").text_content()
        assert tip.startswith("NCCL all-reduce f32 · ")
        assert f"{longest['ns'] / 1e6:.1f}\u202fms" in tip
        page.mouse.click(*at)
        details = page.locator("#tl-details dl")
        assert int(details.get_attribute("data-ns")) == longest["ns"]
        said = details.inner_text()
        assert "all-reduce, fp32, data parallel (ranks 0, 1)" in said
        assert f"Stream\n{longest['stream']}" in said
        assert f"Operator\n{longest['operator']}" in said
        assert longest["name"] in page.locator("#tl-details").inner_text()


def test_wheel_keys_drag_and_buttons_move_the_view(written, opened):
    _, path = written("ddp")
    view = "() => [TA.view.t0, TA.view.t1]"
    with opened(path) as page:
        page.locator("#timeline").scroll_into_view_if_needed()
        canvas = page.locator("#tl-canvas").bounding_box()
        page.click("[data-do=whole]")
        whole = page.evaluate(view)

        def span():
            settled(page)
            t0, t1 = page.evaluate(view)
            return t1 - t0

        middle = (canvas["x"] + 600, canvas["y"] + 60)
        page.mouse.move(*middle)
        page.mouse.wheel(0, -300)
        assert span() == whole[1] - whole[0], "the page scrolls as long as the timeline has not been clicked"
        page.locator("#tl-canvas").focus()
        page.locator("#tl-canvas").scroll_into_view_if_needed()
        canvas = page.locator("#tl-canvas").bounding_box()
        page.mouse.move(canvas["x"] + 600, canvas["y"] + 60)
        page.mouse.wheel(0, -300)
        zoomed = span()
        assert zoomed < whole[1] - whole[0]
        page.keyboard.press("+")
        assert span() == pytest.approx(zoomed / 2)
        page.keyboard.press("0")
        assert span() == whole[1] - whole[0]
        page.mouse.move(canvas["x"] + 300, canvas["y"] + 60)
        page.mouse.down()
        page.mouse.move(canvas["x"] + 500, canvas["y"] + 60, steps=4)
        page.mouse.up()
        assert span() == pytest.approx(
            (whole[1] - whole[0]) * 200 / (canvas["width"] - page.evaluate("TA.view.left")), rel=0.02
        )
        page.click("[data-do=step]")
        assert 60e6 < span() < 75e6
        page.click("[data-do=fold]")
        assert page.evaluate("() => TA.view.layout.rows.map(r => r.part)") == ["folded", "folded"]


def test_search_counts_what_it_highlights_and_the_rest_pales(written, opened):
    report, path = written("ddp")
    names = report.results["timeline"].table["name"].astype("str")
    operators = report.results["timeline"].table["operator"].astype("str")
    compute = KINDS["compute"][1] << 8 | KINDS["compute"][2]
    with opened(path) as page:
        page.fill("#tl-search", "nvjet")
        said = page.locator("#tl-found").text_content()
        assert said.startswith(f"{names.str.contains('nvjet').sum():,} operations")
        assert "full name" not in said
        settled(page)
        assert compute in page.evaluate(PAINTED)
        page.fill("#tl-search", "ring_ll")
        said = page.locator("#tl-found").text_content()
        assert said.startswith(f"{names.str.contains('RING_LL').sum():,} operations")
        assert "AllReduce_Sum_f32_RING_LL" in said, "the short name does not say why it was found"
        page.fill("#tl-search", "aten::mm")
        said = page.locator("#tl-found").text_content()
        assert said.startswith(f"{operators.str.contains('aten::mm').sum():,} operations")
        assert "; launched by aten::mm; on the CPU " in said
        page.fill("#tl-search", "no such kernel")
        settled(page)
        assert compute not in page.evaluate(PAINTED)


def test_the_saved_file_has_the_operations_of_the_export_command(written, opened, tmp_path):
    """Same slices at the same moments; the command writes far more beside them."""
    traces = sample("moe").ranks
    report, path = written("moe")
    with opened(path, accept_downloads=True) as page:
        with page.expect_download() as waiting:
            page.click("[data-do=save]")
        assert waiting.value.suggested_filename == "moe.perfetto.json.gz"
        saved = json.loads(gzip.decompress(waiting.value.path().read_bytes()))["traceEvents"]
    perfetto.write(run(traces, perfetto.NEEDED), tmp_path / "x.json", "x", lambda visitor: [*map(visitor, traces)])
    made = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in saved if e["name"] == "thread_name"}
    own = [e for e in saved if e["ph"] == "X" and tracks[e["pid"], e["tid"]].startswith("stream")]
    assert moments(own) == moments([e for e in made if e.get("cat") in ("compute", "comm", "wait", "copy")])
    assert len(own) >= len(report.results["timeline"])


def moments(events):
    """Start after the first one's, and length of each slice, in µs."""
    first = min(e["ts"] for e in events)
    return sorted((round(e["ts"] - first, 3), round(e["dur"], 3)) for e in events)


def test_tables_sort_search_and_filter(written, opened):
    report, path = written("ddp")
    table = ".table[data-name='kernels_over_ranks']"
    rows = report.results["kernels"].to_frame()
    with opened(path) as page:
        shares = [float(value) for value in column(page, "kernels_over_ranks", 2)]
        assert shares == sorted(shares, reverse=True)
        page.click(f"{table} th[data-column=calls] button")
        page.wait_for_selector(f"{table} th[data-column=calls][aria-sort=descending]")
        calls = [float(value) for value in column(page, "kernels_over_ranks", 4)]
        assert len(calls) == rows["name"].nunique()
        assert calls == sorted(calls, reverse=True)
        page.click(f"{table} th[data-column=name] button")
        page.wait_for_selector(f"{table} th[data-column=name][aria-sort=ascending]")
        assert column(page, "kernels_over_ranks", 0)[0].startswith("cudnn_generated")
        page.fill("[aria-label='Search in kernels_over_ranks']", "nvjet")
        page.locator("#kernels output", has_text=" rows").first.wait_for()
        found = column(page, "kernels_over_ranks", 0)
        assert set(found) == {name for name in rows["name"] if "nvjet" in name}
        page.fill("[aria-label='Search in kernels_over_ranks']", "")
        page.select_option("#kernels select[aria-label=Kind] >> nth=0", "comm")
        page.locator("#kernels output", has_text="1 of ").first.wait_for()
        assert column(page, "kernels_over_ranks", 1) == ["comm"]


def test_long_tables_are_whole_once_they_are_opened(written, opened):
    report, path = written("ddp")
    rows = report.results["operators_over_ranks"].rows()
    with opened(path) as page:
        assert len(column(page, "operators_over_ranks", 0)) < len(rows)
        page.evaluate(
            "() => { document.querySelector(\".table[data-name='operators_over_ranks']\").closest('details').open = true; }"
        )
        page.wait_for_selector(
            f".table[data-name='operators_over_ranks'] tbody tr:nth-child({len(rows)})", state="attached"
        )
        assert column(page, "operators_over_ranks", 0) == [row["operator"] for row in rows]
        assert [float(value) for value in column(page, "operators_over_ranks", 3)] == [row["total_ns"] for row in rows]


def test_charts_are_drawn_when_they_come_into_view(written, opened):
    _, path = written("ddp")
    with opened(path) as page:
        assert page.evaluate("typeof Plotly") == "undefined"
        unfold(page, "chart-calls")
        page.wait_for_selector("#chart-calls[data-drawn=yes] .markers path.point", state="attached")


def test_plotly_is_loaded_only_where_a_chart_of_it_is(written, opened):
    _, path = written("moe")
    with opened(path) as page:
        unfold(page, "chart-calls")
        page.wait_for_selector("#chart-calls[data-drawn=yes]", state="attached")
        assert page.evaluate("typeof Plotly") == "undefined"


def test_bars_show_per_cent_and_sort(written, opened):
    _, path = written("ddp")
    with opened(path) as page:
        ranks = "() => [...document.querySelectorAll('.bars .bar')].map(row => Number(row.dataset.rank))"
        page.select_option(".bar-tools label:nth-child(2) select", "exposed_wait_ns")
        assert page.evaluate(ranks) == [1, 0]
        page.select_option(".bar-tools label:nth-child(1) select", "%")
        assert "24.8%" in page.locator(".bar[data-rank='0'] svg").text_content()
        ends = page.evaluate(
            "() => [...document.querySelectorAll('.bars .bar')].map(row => { const r = [...row.querySelectorAll('g rect')].at(-1);"
            "return parseFloat(r.getAttribute('x')) + parseFloat(r.getAttribute('width')); })"
        )
        assert ends == pytest.approx([100, 100])
        # By all idle time first, and then by its causes.
        page.select_option(".bar-tools label:nth-child(1) select", "ms")
        menu = ".bar-tools label:nth-child(2) select"
        shown = page.locator(f"{menu} option").all_text_contents()
        assert shown.index("idle") < shown.index("data loading") < shown.index("CPU launch")
        assert len(set(shown)) == len(shown)
        page.select_option(menu, "exposed_wait_ns")
        page.select_option(menu, "idle")
        idle = page.evaluate(
            "() => [...document.querySelectorAll('.bars .bar')].map(row => [...row.querySelectorAll('g')]"
            ".filter(g => g.dataset.name.startsWith('idle')).reduce((sum, g) => sum + Number(g.dataset.ns), 0))"
        )
        assert idle == sorted(idle, reverse=True)
        assert page.evaluate("() => document.querySelector('.bars .bar').dataset.rank") == "0"


def test_wide_tables_show_all_their_columns_at_a_click(written, opened):
    report, path = written("ddp")
    with opened(path) as page:
        page.evaluate("() => { document.querySelectorAll('#time details').forEach(d => { d.open = true; }); }")
        seen = "() => [...document.querySelectorAll(\".table[data-name='steps'] thead th\")].filter(h => h.offsetParent).length"
        few = page.evaluate(seen)
        assert page.evaluate(
            "() => { const t = document.querySelector(\".table[data-name='steps']\"); return t.scrollWidth <= t.clientWidth; }"
        )
        page.click("#steps button:has-text('columns')")
        assert few < page.evaluate(seen) == len(report.results["steps"].columns)
        page.click("#steps button:has-text('columns')")
        assert page.evaluate(seen) == few


BESIDE_NAMES = {
    390: {
        "by_collective": ["collective", "total_ns", "exposed_comm_ns", "exposed_transfer_ns"],
        "kernels_over_ranks": ["name", "share_pct", "total_ns"],
    },
    1366: {"kernels_over_ranks": ["name", "kind", "share_pct", "total_ns"]},
}


@pytest.mark.parametrize("width", BESIDE_NAMES)
def test_on_a_phone_the_times_stand_beside_the_names(width, written, opened):
    _, path = written("ddp")
    with opened(path, width=width, height=844) as page:
        for table, seen in BESIDE_NAMES[width].items():
            heads = page.evaluate(
                "name => [...document.querySelectorAll(`.table[data-name='${name}'] thead th`)]"
                ".filter(th => th.offsetParent && th.getBoundingClientRect().right <= innerWidth).map(th => th.dataset.column)",
                table,
            )
            assert heads[: len(seen)] == seen, table


def test_what_is_in_view_is_said_in_words(written, opened):
    report, path = written("ddp")
    ranks = report.results["ranks"].rows()
    whole = max(row["window_start_ns"] + row["window_ns"] for row in ranks) - min(
        row["window_start_ns"] for row in ranks
    )
    title = "() => document.getElementById('tl-window-title').textContent"
    with opened(path) as page:
        page.click("[data-do=whole]")
        settled(page)
        assert page.evaluate(title).startswith(f"In view: the whole capture, {whole / 1e6:.0f}\u202fms from the first")
        for step, button in ((2, "step"), (3, "next"), (4, "next"), (3, "previous")):
            page.click(f"[data-do={button}]")
            settled(page)
            lengths = [row["window_ns"] for row in report.results["steps"].rows() if row["step"] == step]
            said = page.evaluate(title)
            assert said.startswith(f"In view: step {step} of all ranks, ")
            shown = dict.fromkeys(f"{length / 1e6:.1f}\u202fms" for length in (min(lengths), max(lengths)))
            assert said.endswith(f"takes {' to '.join(shown)}")
        page.click("[data-do=in]")
        settled(page)
        assert ", from " in page.evaluate(title)


def test_the_icicle_shows_the_chosen_rank_in_letters_that_can_be_read(written, opened):
    _, path = written("ddp")
    names = "#chart-operator_kernels text.slicetext"
    with opened(path) as page:
        unfold(page, "chart-operator_kernels")
        page.wait_for_selector("#chart-operator_kernels[data-drawn=yes]")
        assert page.locator(names).first.text_content() == "rank 0"
        page.select_option(".chart-tools select", label="1")
        page.locator(names, has_text="rank 1").wait_for()
        page.click("#theme")
        page.locator(names, has_text="rank 1").wait_for()
        sizes = page.evaluate(
            "names => [...document.querySelectorAll(names)].map(t => parseFloat(getComputedStyle(t).fontSize))", names
        )
        assert len(sizes) > 3
        assert min(sizes) >= 12


def test_the_theme_follows_preference_and_button(written, opened):
    _, path = written("moe")
    paper = "() => getComputedStyle(document.body).backgroundColor"
    care = "getComputedStyle(document.documentElement).getPropertyValue('--care')"
    with opened(path, color_scheme="dark") as page:
        assert page.evaluate(paper) == "rgb(22, 24, 27)"
        pale = page.evaluate(care)
        page.emulate_media(media="print", color_scheme="dark")
        page.wait_for_function(f"pale => {care} !== pale", arg=pale)
        page.emulate_media(media="screen", color_scheme="dark")
        page.wait_for_function(f"pale => {care} === pale", arg=pale)
        page.click("#theme")
        assert page.evaluate(paper) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("name", [pytest.param("ddp", marks=pytest.mark.thorough), "moe"])
def test_nothing_sticks_out_of_the_page(name, written, opened):
    _, path = written(name)
    with opened(path) as page:
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        for width in (360, 768, 1366, 1920):
            page.set_viewport_size({"width": width, "height": 740})
            settled(page)
            assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, width


def test_hostile_names_do_not_run(opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events = [kernel(10 * place, 5, name=name) for place, name in enumerate(HOSTILE)]
    write(Path("t/rank0.json"), document(events, rank=0, world_size=1))
    assert command(["--trace-dir", "t", "--output", "out", "--quiet"]) == 0
    with opened(tmp_path / "out" / "summary.html") as page:
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        page.locator("#tl-canvas").focus()
        for _ in HOSTILE:
            page.keyboard.press(".")
            settled(page)
        assert page.title() == "t · where the time goes"
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        names = column(page, "kernels_over_ranks", 0)
        # Signs that turn the direction of text are replaced when a trace is read.
        assert sorted(names) == sorted(re.sub("[\u202e\u2066\u200f]", "\ufffd", name) for name in HOSTILE)


def test_two_fingers_zoom_and_one_moves(written, opened):
    _, path = written("ddp")
    with opened(path, has_touch=True) as page:
        page.locator("#tl-canvas").scroll_into_view_if_needed()
        box = page.locator("#tl-canvas").bounding_box()
        session = page.context.new_cdp_session(page)

        def touch(kind, *places):
            points = [{"x": box["x"] + x, "y": box["y"] + 60, "id": number} for number, x in enumerate(places)]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        def view():
            settled(page)
            return page.evaluate("() => [TA.view.t0, TA.view.t1 - TA.view.t0]")

        page.click("[data-do=whole]")
        page.locator("#tl-canvas").scroll_into_view_if_needed()
        box = page.locator("#tl-canvas").bounding_box()
        _, whole = view()
        touch("touchStart", 450, 550)
        touch("touchMove", 400, 600)
        touch("touchEnd")
        start, span = view()
        assert span == pytest.approx(whole / 2)
        touch("touchStart", 600)
        touch("touchMove", 500)
        touch("touchMove", 400)
        touch("touchEnd")
        moved, same = view()
        assert same == pytest.approx(span)
        assert moved > start
