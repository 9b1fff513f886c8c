"""A wrong name in a registry is an error here, not a section, finding or file that silently is not there."""

import ast
import inspect
from pathlib import Path

import pytest

import traceanalyzer
from tests.builders import rank_trace
from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.analyses.registry import SHARED
from traceanalyzer.findings.conclude import every_kind
from traceanalyzer.readers import READERS
from traceanalyzer.report import assets
from traceanalyzer.report.charts import CHARTS
from traceanalyzer.report.contents import build
from traceanalyzer.report.writers import WRITERS
from traceanalyzer.report.writers.html import PARTS, PLACES
from traceanalyzer.runners import strategies
from traceanalyzer.runners.strategies import STRATEGIES
from traceanalyzer.scale import Summary

RESULTS = {*ANALYSES, "run_info"}


def needed(function):
    """Parameters after the first that have no default."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return {one.name for one in parameters if one.default is one.empty}


@pytest.mark.parametrize("name", ANALYSES)
def test_what_an_analysis_needs_exists(name):
    analysis = ANALYSES[name]
    assert needed(analysis.across) <= set(ANALYSES)
    assert analysis.per_rank is None or needed(analysis.per_rank) <= {*ANALYSES, *SHARED}


def test_no_room_hides_an_analysis():
    rooms = {place.stem for place in Path(traceanalyzer.__file__).parent.iterdir()}
    assert not rooms & {*ANALYSES}, "traceanalyzer.<name> would be a module once it is imported"


def test_every_place_and_template_of_the_page_belongs_to_a_result():
    placed = [one.name for own in PLACES.values() for one in own]
    assert set(placed) <= RESULTS
    assert len(placed) == len(set(placed))
    assert set(PLACES) <= set(PARTS)
    used = {one.template for own in PLACES.values() for one in own}
    assert {path.stem for path in (assets.templates() / "sections").iterdir()} == used
    assert set(CHARTS) <= set(ANALYSES)


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_what_a_kind_of_finding_reads_exists(kind):
    assert next(iter(inspect.signature(kind).parameters)).lstrip("_") == "run"
    assert needed(kind) <= set(ANALYSES)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__.rpartition(".")[2])
def test_every_reader_has_its_functions_and_leaves_other_files_alone(reader, tmp_path):
    for function in (reader.recognises, reader.peek, reader.read):
        assert function.__doc__
    other = tmp_path / "notes.txt"
    other.write_text("not a trace")
    assert not reader.recognises(other)


@pytest.fixture(scope="module")
def report():
    return build(Summary(run([rank_trace([("compute", 0, 10), ("comm", 5, 20)])]), (), (), {}), "job")


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_writes_the_files_that_it_names(name, report, tmp_path):
    made = WRITERS[name](report, tmp_path)
    assert made
    assert all(path.is_file() and path.stat().st_size for path in made)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_a_described_class_where_its_entry_says(name):
    """Read, not imported: torch may be missing. What it trains is compared in `tests/runners/test_strategies.py`."""
    module, class_name = STRATEGIES[name].split(".")
    tree = ast.parse(Path(strategies.__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    assert ast.get_docstring(found)
