"""Questions over the samples whose answers are known, asked through the MCP server as an assistant asks them."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from traceanalyzer.agents.verbs import MOST_CHARACTERS, Workspace
from traceanalyzer.errors import UsageError

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the extra agents")  # it takes a second to load

ROOT = Path(__file__).parents[2]

# (question, tool, arguments, where in the answer, what must stand there): "said~" looks for a text in the sentences,
# "rows.N.column" in the rows, "status" at the status.
QUESTIONS = [
    ("How long is rank 0's whole capture of ddp?", "table", {"folder": "ddp", "name": "breakdown", "where": ["rank=0"]}, "rows.0.window_ns", 200_219_528),
    ("How long does rank 0 compute in it?", "table", {"folder": "ddp", "name": "breakdown", "where": ["rank=0"]}, "rows.0.compute_ns", 49_958_284),
    ("How much communication of rank 1 is exposed?", "table", {"folder": "ddp", "name": "breakdown", "where": ["rank=1"]}, "rows.0.exposed_comm_ns", 137_754_920),
    ("How long is rank 0's GPU idle?", "table", {"folder": "ddp", "name": "breakdown", "where": ["rank=0"]}, "rows.0.idle_ns", 142_864_428),
    ("How much of rank 1's exposed communication is transfer?", "table", {"folder": "ddp", "name": "exposed_comm", "where": ["rank=1"], "sort": "exposed_comm_ns"}, "rows.0.exposed_transfer_ns", 7_337_965),
    ("What bounds ddp?", "summary", {"folder": "ddp"}, "said~", "CPU-bound: CPU work is"),
    ("Which rank is the straggler in ddp_straggler?", "findings", {"folder": "ddp_straggler"}, "rows.0.headline~", "ank 1"),
    ("What does that rank run that others don't?", "findings", {"folder": "ddp_straggler"}, "text~", "[8192, 8192]"),
    ("How many ranks has ddp?", "summary", {"folder": "ddp"}, "total_rows", 2),
    ("How many steps were recorded on rank 0 of ddp?", "steps", {"folder": "ddp", "ranks": "0"}, "rows.0.step", 2),
    ("For whom does rank 1 of ddp wait longest in step 2?", "why_waiting", {"folder": "ddp", "ranks": "1", "steps": "2"}, "rows.0.waits_for", 0),
    ("Is a rank that is not there refused by name?", "why_waiting", {"folder": "moe", "ranks": "7"}, "why~", "no rank 7; the run has ranks 0 and 1"),
    ("Are its steps?", "steps", {"folder": "moe", "ranks": "7"}, "why~", "no rank 7; the run has ranks 0 and 1"),
    ("Is a step?", "why_waiting", {"folder": "moe", "ranks": "1", "steps": "77"}, "why~", "no communication in steps 77; there is in steps 1–3"),
    ("Does rank 0 of pp wait for rank 1?", "why_waiting", {"folder": "pp", "ranks": "0"}, "rows.0.waits_for", 1),
    ("What collectives does fsdp_full run?", "table", {"folder": "fsdp_full", "name": "nccl", "sort": "calls"}, "text~", "all_gather"),
    ("And reduce-scatters?", "table", {"folder": "fsdp_full", "name": "nccl", "where": ["collective=reduce_scatter"]}, "status", "ok"),
    ("Does ddp run all-to-alls?", "table", {"folder": "ddp", "name": "nccl", "where": ["collective=all_to_all"]}, "status", "nothing_found"),
    ("Does moe?", "table", {"folder": "moe", "name": "nccl", "where": ["collective=all_to_all"]}, "status", "ok"),
    ("What was the peak memory of ddp?", "memory", {"folder": "ddp"}, "status", "could_not_look"),
    ("Which kernels of rank 0 are NCCL's?", "table", {"folder": "ddp", "name": "kernels", "where": ["rank=0", "name~nccl"]}, "rows.0.kind", "comm"),
    ("Who launches the all-reduces?", "inspect", {"folder": "ddp", "ranks": "0", "operation": "AllReduce"}, "rows.0.operator", "record_param_comms"),
    ("Longest matrix product of the straggler?", "inspect", {"folder": "ddp_straggler", "ranks": 1, "operation": "aten::mm", "top": 1}, "rows.0.kind", "compute"),
    ("Is there a kernel called flashmla?", "inspect", {"folder": "ddp", "ranks": "0", "operation": "flashmla"}, "status", "nothing_found"),
    ("Which tables are there?", "tables", {"folder": "ddp"}, "text~", "breakdown"),
    ("Is a misspelt table refused by name?", "table", {"folder": "ddp", "name": "idel"}, "why~", "idle"),
    ("Is a folder outside the roots refused?", "summary", {"folder": "../../README.md"}, "why~", "below"),
    ("Is an absent folder?", "summary", {"folder": "nowhere"}, "status", "usage_error"),
    ("What is the pipeline's bubble on rank 0?", "table", {"folder": "pp", "name": "pipeline", "where": ["rank=0"]}, "status", "ok"),
    ("Can ddp and moe be compared?", "compare", {"base": "ddp", "other": "moe"}, "why~", "did not do the same work"),
    ("What does ddp_straggler do that ddp does not?", "compare", {"base": "ddp", "other": "ddp_straggler"}, "said~", "40 [8192, 8192] × [8192, 8192] bf16 on rank 1"),
    ("Does a run differ from itself?", "compare", {"base": "ddp", "other": "ddp"}, "said~", "No figure differs"),
    ("Why is the GPU of rank 0 idle?", "table", {"folder": "ddp", "name": "idle", "where": ["rank=0"]}, "text~", "host"),
    ("What if rank 1 of ddp_straggler were as fast as rank 0?", "what_if", {"folder": "ddp_straggler", "changes": ["rank 1=peers"]}, "rows.0.of", "step"),
    ("Is an unknown change refused by name?", "what_if", {"folder": "ddp_straggler", "changes": ["rnak 1=peers"]}, "why~", "rank"),
    ("Has a column with a typo a clear answer?", "table", {"folder": "ddp", "name": "idle", "where": ["rnak=0"]}, "why~", "no column 'rnak'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def served():
    from traceanalyzer.agents.verbs import server

    return server(Workspace((ROOT / "tests" / "captures",), jobs=1))


def asked(served, tool, arguments):
    from mcp import Client

    async def call():
        async with Client(served, raise_exceptions=True) as client:
            return await client.call_tool(tool, arguments)

    with ThreadPoolExecutor(1) as pool:  # a browser's tests may have a loop running in this thread
        result = pool.submit(asyncio.run, call()).result()
    assert len(result.model_dump_json()) <= 1.5 * MOST_CHARACTERS, "what is sent: quotation marks are escaped"
    return json.loads(result.content[0].text)


def _asked_always(arguments):
    """Each folder is analysed for its first question."""
    return not any(arguments.get(name) in ("fsdp_full", "moe", "pp") for name in ("folder", "other")) and (
        arguments.get("other") != "ddp_straggler"
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "where", "expected"),
    [
        pytest.param(*one, id=question, marks=() if _asked_always(one[1]) else pytest.mark.thorough)
        for question, *one in QUESTIONS
    ],
)
def test_a_question_through_the_server(served, tool, arguments, where, expected):
    answer = asked(served, tool, arguments)
    text = json.dumps(answer, ensure_ascii=False)
    assert len(text) <= MOST_CHARACTERS
    if where.endswith("~"):
        whole = text if where == "text~" else json.dumps(at(answer, where[:-1]), ensure_ascii=False)
        assert expected in whole
    else:
        assert at(answer, where) == expected


def at(answer, path):
    for part in path.split("."):
        answer = answer[int(part)] if part.isdigit() else answer[part]
    return answer


def test_a_long_answer_is_read_on_with_its_cursor(served):
    first = asked(served, "table", {"folder": "ddp", "name": "kernels"})
    assert first["cursor"] == len(first["rows"]) < first["total_rows"]
    rest, cursor = list(first["rows"]), first["cursor"]
    while cursor is not None:
        piece = asked(served, "table", {"folder": "ddp", "name": "kernels", "cursor": cursor})
        rest += piece["rows"]
        cursor = piece.get("cursor")
    assert len({row["id"] for row in rest}) == len(rest) == first["total_rows"]


def test_every_column_of_an_answer_is_defined(served):
    answer = asked(served, "table", {"folder": "ddp", "name": "breakdown"})
    assert set(answer["rows"][0]) - {"id"} <= set(answer["columns"])


def test_a_folder_may_not_be_left_by_a_link(tmp_path):

    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "way_out").symlink_to(ROOT)
    with pytest.raises(UsageError, match="below"):
        Workspace((inside,)).place("way_out/sample_traces")
    assert Workspace((inside,), is_open=True).place("way_out/sample_traces") == ROOT / "sample_traces"


def test_a_relative_folder_is_the_current_folders(tmp_path, monkeypatch, capsys):
    """Not one of the same name at the root of the file system."""
    from traceanalyzer.cli import run

    monkeypatch.chdir(tmp_path)
    assert run(["query", "summary", "etc"]) == 2
    assert "etc: no such folder\n" in capsys.readouterr().err
    (tmp_path / "link").symlink_to(ROOT / "tests" / "captures" / "ddp")
    assert run(["query", "tables", "link"]) == 0
    assert run(["memory", "link"]) == 2
    assert "could not look: these traces record no memory" in capsys.readouterr().out
    assert run(["query", "table", "link", "idel"]) == 2
    assert "no table 'idel'; did you mean idle?" in capsys.readouterr().err


def test_a_root_that_is_not_there_is_refused(tmp_path, capsys):
    from traceanalyzer.cli import run

    assert run(["mcp", "--root", str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["a\0b", "x" * 100_000, "\ud800"])
def test_a_name_that_no_folder_can_have_is_no_folder(folder):
    with pytest.raises(UsageError, match="no such folder"):
        Workspace((ROOT,)).place(folder)
