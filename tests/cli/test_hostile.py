"""Names that are meant to do harm, through the whole command, in everything that it writes."""

import csv
import html.parser
import io
import json
import re
import xml.etree.ElementTree as ET

import pytest

from tests.builders import NAMES, document, host, kernel, write
from tests.cli import typed

HOSTILE = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><b onmouseover=alert(1)>', '=HYPERLINK("http://x","y")',
    "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\x1b[31mred\x1b]0;title\x07", "a\x08\x00b\x7f", "abc\u202egnp.exe", "../../etc/passwd",
    "[red]markup[/red]", "{{ 7*7 }}", "`rm -rf`| cell |\n# title", "\ud800 half", "]]>", "&lt;b&gt;", "x" * 5000,
    "＝1+1", "\u3000=2+2", "![x](https://evil.example/y) @someone www.evil.example",
)  # fmt: skip


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Everything that one run writes and prints: names → texts."""
    place = tmp_path_factory.mktemp("hostile")
    for rank in (0, 1):
        events = [host(0, 2500, name="ProfilerStep#1", cat="user_annotation")]
        for number, name in enumerate(HOSTILE, 1):
            at = number * 100
            events += [
                host(at, 30, name=name, **{"External id": number, "Input Dims": [[2, 2]], "Input type": [name]}),
                host(at + 1, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number),
                host(at, 40, name=name, cat="user_annotation"),
                host(at, 35, name=f"nn.Module: {name}", cat="python_function"),
                kernel(at + 5, 20, name=name, correlation=number),
                host(at + 4, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number + 1000),
                kernel(at + 20, 30, name=NAMES["comm"], stream=17, correlation=number + 1000, **{
                    "Collective name": "allreduce", "Process Group Name": name, "Process Group Description": name,
                    "dtype": name, "In msg nelems": 5, "Out msg nelems": 5, "Group size": 2}),
            ]  # fmt: skip
        content = document(events, rank=rank, deviceProperties=[{"id": 0, "name": HOSTILE[0]}], trace_id=HOSTILE[7])
        write(place / "job" / f"rank{rank}.json", content)
    (place / "job" / "run.json").write_text(
        json.dumps({"strategy": HOSTILE[0], "model": {HOSTILE[1]: HOSTILE[7]}, "dtype": HOSTILE[3]})
    )
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("sys.stdout", said)
        formats = [word for name in ("html", "csv", "json") for word in ("--format", name)]
        assert typed("job -o out --jobs 1 --fail-on 'idle_pct > 200'", *formats) == 0
        assert typed("export job -o trace.json") == 0
        assert typed("job -o gated --jobs 1 --fail-on 'kernels.calls > 0'", *formats) == 1
    found = {path.relative_to(place).as_posix(): path.read_bytes().decode() for path in place.rglob("*") if path.is_file()}  # fmt: skip
    return {name: text for name, text in found.items() if not name.startswith("job")} | {"terminal": said.getvalue()}


def test_all_formats_are_there(outputs):
    files = {f"out/{name}" for name in ("summary.html", "summary.csv", "summary.json", "gate.md", "gate.xml")}
    assert {*outputs} >= {"terminal", "trace.json", *files}
    assert any(name.startswith("out/tables/") for name in outputs)


def test_no_control_or_turning_character_anywhere(outputs):
    for name, text in outputs.items():
        found = re.findall(r"[^\n\r\t -~\u00a0-\u200d\u2010-\u2029\u202f-\ud7ff\ue000-\U0010ffff]", text)
        assert not found, (name, sorted(set(found))[:5])


class Tags(html.parser.HTMLParser):
    """Tags with handlers or sources, and scripts."""

    def __init__(self):
        super().__init__()
        self.bad, self.scripts = [], 0

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.bad += [(tag, name) for name, value in attrs if name.startswith("on") or (name == "src" and value == "x")]


def test_names_are_text_in_the_page(outputs):
    tags = Tags()
    tags.feed(outputs["out/summary.html"])
    assert tags.bad == []
    assert "<script>alert" not in outputs["out/summary.html"]
    assert "onerror=alert(1)>" not in outputs["out/summary.html"].replace("&gt;", "")
    assert "default-src &#39;none&#39;" in outputs["out/summary.html"]


def test_no_cell_is_a_formula(outputs):
    number = re.compile(r"-(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?|-inf")
    for name, text in outputs.items():
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row] if name.endswith(".csv") else []
        bad = [cell for cell in cells if re.match(r"\s*[=+@＝＋＠－\t\r-]", cell) and not number.fullmatch(cell)]
        assert not bad, (name, bad[:3])


def test_no_link_image_or_mention_is_live_in_a_pull_request(outputs):
    text = outputs["gated/gate.md"]
    assert "someone" in text
    assert not re.findall(r"!?\[[^\]]*\]\(|@\w|www\.|://|<(?!/?(?:details|summary)>)", text)


def test_structured_files_can_be_read(outputs):
    json.loads(outputs["out/summary.json"])
    json.loads(outputs["trace.json"])
    ET.fromstring(outputs["out/gate.xml"])


def test_nothing_is_written_by_a_name_of_the_trace(outputs):
    assert not [name for name in outputs if "passwd" in name or ".." in name]
