"""What stays, what goes and what is refused in the folder of a report."""

import json

import pytest

from traceanalyzer.errors import UsageError
from traceanalyzer.report.writers import RECORD, whole


def fill(target, names, source="/runs/ddp", content="1"):
    with whole(target, source, content) as draft:
        for name in names:
            (draft.path / name).parent.mkdir(parents=True, exist_ok=True)
            (draft.path / name).write_text(f"{source} {content}")
        return draft.notes


def names(target):
    return {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file() and path.name != RECORD}


PAGE, TABLE, RANK = "summary.html", "tables/idle.csv", "events/gpu_ops/rank_1.parquet"


@pytest.mark.parametrize(
    ("source", "content", "left"),
    [
        ("/runs/ddp", "1", {PAGE, TABLE, RANK, "summary.csv"}),
        ("/runs/ddp", "2", {"summary.csv"}),
        ("/other/ddp", "2", {"summary.csv"}),
    ],
    ids=["same traces", "other steps or captures", "another run"],
)
def test_a_folder_holds_one_report(tmp_path, source, content, left):
    target = tmp_path / "out"
    fill(target, [PAGE, TABLE, RANK, "gate.xml"])
    mine = target / "tables" / "mine.csv"
    mine.write_text("mine")
    notes = fill(target, ["summary.csv"], source, content)
    assert names(target) == left | {"tables/mine.csv"}
    assert not (target / "events").exists() or RANK in left
    assert [f"{target} held the report of /runs/ddp" in note for note in notes] == [True] * (source != "/runs/ddp")
    assert json.loads((target / RECORD).read_text())["files"] == sorted(left)


def test_what_no_report_wrote_is_not_removed(tmp_path):
    (tmp_path / "gate.py").write_text("mine")
    (tmp_path / "keep.csv").write_text("mine")
    record = {"source": "x", "content": "0", "files": ["../" + tmp_path.name + "/keep.csv", "/etc/hostname", "gate.md"]}
    (tmp_path / RECORD).write_text(json.dumps(record))
    fill(tmp_path, [PAGE])
    assert names(tmp_path) == {"gate.py", "keep.csv", PAGE}


def interrupted(error):
    yield PAGE
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("is_new", [True, False])
def test_what_ends_early_leaves_the_folder_as_it_was(tmp_path, error, is_new):
    target = tmp_path / "out"
    if not is_new:
        fill(target, [PAGE, TABLE])
    with pytest.raises(error):
        fill(target, interrupted(error), "/other", "2")
    assert target.exists() != is_new
    assert is_new or (target / PAGE).read_text() == "/runs/ddp 1"
    assert is_new or {path.name for path in target.iterdir()} == {PAGE, "tables", RECORD}


def test_a_folder_in_the_way_is_said(tmp_path):
    (tmp_path / PAGE / "x").mkdir(parents=True)
    with pytest.raises(UsageError, match="is there already and no report's"):
        fill(tmp_path, [PAGE])
    assert {path.name for path in tmp_path.iterdir()} == {PAGE}
