"""The documentation says what the code does."""

import inspect
import itertools
import re
import shlex
from pathlib import Path

import click
import pandas as pd
import pytest

import traceanalyzer as ta
from tests.builders import rank_trace
from tests.extending import example
from traceanalyzer.agents.verbs import WHAT_IF_COLUMNS
from traceanalyzer.analyses import ANALYSES, thresholds_of
from traceanalyzer.cli import MOVED, cli
from traceanalyzer.cli.options import RENAMED, Rare
from traceanalyzer.diff import metrics as diff_metrics
from traceanalyzer.findings.conclude import every_kind
from traceanalyzer.findings.run import Run
from traceanalyzer.findings.savings import Saves
from traceanalyzer.findings.what_if import Answer
from traceanalyzer.gate import check_names, parse
from traceanalyzer.meaning.columns import Adds
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers import FORMATS, READERS

ROOT = Path(__file__).parents[1]

DOCS = ROOT / "docs"
COOKBOOK = DOCS / "cookbook.md"
TABLES_PAGE, FINDINGS, COMMANDS, FORMATS_PAGE = (
    DOCS / "reference" / f"{name}.md" for name in ("tables", "findings", "commands", "formats")
)


def name_of(page) -> str | None:
    return page.relative_to(ROOT).as_posix() if isinstance(page, Path) else None


_HEAD = """# Every table and column

Generated from the code by `pytest tests/test_docs.py --update-golden`.

The same names are used in Python, CSV, JSON and Parquet, and in gates. A name ends in its unit: `_ns` nanoseconds, `_bytes`,
`_pct` percent. *Adds up* says how a column is combined over rows, steps or ranks: a sum, an extreme, or computed again from
the columns that add up. An unknown value is absent (`NA`, null, an empty field), never 0.

Tables marked *detail* have a row for each event. They are separate files and not in `summary.json`.
"""


def _adds(column) -> str:
    return "" if column.adds is Adds.NONE else column.adds


def tables() -> str:
    parts = [_HEAD]
    for name, analysis in ANALYSES.items():
        result = analysis.result
        mark = " · *detail*" if result.is_detail else ""
        parts.append(
            f"## {name}{mark}\n\n**{result.title}.** {result.meaning()}\n\nKey: {', '.join(f'`{k}`' for k in result.keys)}\n"
        )
        rows = "\n".join(
            f"| `{column}` | {text.unit} | {_adds(text)} | {text.definition.replace('|', chr(92) + '|')} |"
            for column, text in result.columns.items()
        )
        parts.append(f"| column | unit | adds up | definition |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


_FINDINGS_HEAD = """# Findings in Python and JSON

`ta.find(traces)` returns the findings, and
`summary.json` has them under `findings`. The [cookbook](../cookbook.md) says how each kind is found
and fixed.

`severity` follows the lower end of the saving, as a share of the step without the profiler: `high` from 10%, `medium` from
3%, `low` from 1%. Everything else is `info`: a fact without a saving ("Also seen"), or a change that saves less than 1%
("Checked, nothing to gain"). Findings whose changes shorten mostly the same work are one finding; the others are its `also`.

Fields of a finding in `summary.json`, since its version 3:

| field | before version 3 | meaning |
|---|---|---|
| `id` | `rule` | the kind, with a section in the cookbook |
| `headline`, `why` | `title` | the bottleneck, and one sentence of evidence |
| `fix` | `recommendation` | what to change, by API and place |
| `saves` | `gain_ns`, `unprofiled_gain_ns` | `ms`, `low_ms`, `high_ms`, `before_ms`, `after_ms`, `percent` of a step without the profiler; null for a fact |
| `confidence` | `gain_is_bound`, `gain_error_ns` | `level` (high, medium, low), `limit` (what makes the interval wide), `remedy` (what recording narrows it) |
| `severity` | `severity` | high, medium, low, info |
| `scope`, `is_blamed` | `ranks`, `named`, `steps` | `ranks` and `steps` (null: every step); whether these ranks are stragglers |
| `what_if` | | the command that replays the change |
| `evidence`, `table`, `interval_ns` | same | rows behind it, and where to look |
| `caveat`, `cause`, `also`, `is_about_capture` | same | when it may not hold; a straggler's cause; findings with the same cause; data quality |

[Simulated jobs whose fault is known](../results/simulated_grid.md) measure how often findings are right.
"""


_COOKBOOK_HEAD = """# Cookbook

One section for each kind of finding: symptom, cause, fix, and what it saved where we fixed it.
"""


def cookbook() -> str:
    groups = itertools.groupby(every_kind(), lambda kind: inspect.getmodule(kind).PLACE[0])
    parts = [text for group, kinds in groups for text in (f"## {group}\n", *map(recipe, kinds))]
    return "\n".join([_COOKBOOK_HEAD, *parts])


def recipe(kind) -> str:
    title, _, text = inspect.getdoc(inspect.getmodule(kind)).partition("\n\n")
    reads = ", ".join(f"`{name}`" for name in read_by(kind)) or "the replay"
    picture = f"cookbook/{kind.__name__}.png"
    if (DOCS / picture).is_file():
        text = text.replace(
            "\n\n**Why.**", f"\n\n![Such a finding, and its place in the timeline]({picture})\n\n**Why.**", 1
        )
    return (
        f"### {title.removesuffix('.')}\n\nFinding id: `{kind.__name__}`\n\n{text}\n\n"
        f"**How it is found.** {inspect.getdoc(kind)}\n\nReads {reads}.\n"
    )


def read_by(kind) -> list[str]:
    """The Results that a kind names, after the run."""
    return list(inspect.signature(kind).parameters)[1:]


def formats() -> str:
    """The page with its table of what is read."""
    rows = "".join(f"| {one.tool} | {one.files} |\n" for one in FORMATS.values())
    return re.sub(r"(?<=\| files \|\n\|---\|---\|\n)(\|.*\n)+", rows, FORMATS_PAGE.read_text(encoding="utf-8"))


_COMMANDS_HEAD = """# Every command and option

Generated from the code by `pytest tests/test_docs.py --update-golden`. `--help` lists common options, `--help-all` all.

Every command takes the folder of traces as an argument; the main command also as `--trace-dir`. These options mean the same
everywhere: `--ranks 0,2-3`, `--steps last`, `--top N`, `--json`, `--output`.

**Completion.** `eval "$(_ANALYZE_TRACES_COMPLETE=bash_source analyze-traces)"` in `~/.bashrc`; for zsh `zsh_source` in `~/.zshrc`; for fish `_ANALYZE_TRACES_COMPLETE=fish_source analyze-traces | source`.

**GitHub Actions.** Where `GITHUB_ACTIONS` is set, each gate that did not pass becomes an annotation of the run.
"""


def command_reference() -> str:
    old = [(f"analyze-traces {name}", f"analyze-traces {new}") for name, new in MOVED.items()] + [*RENAMED.items()]
    table = "\n".join(f"| `{before}` | `{after}` |" for before, after in old)
    parts = [
        _COMMANDS_HEAD,
        f"Old names work for this release:\n\n| old | new |\n|---|---|\n{table}\n",
        *_of_commands(cli, ()),
    ]
    return "\n".join(parts)


def _of_commands(group, words):
    for name, command in group.commands.items():
        context = click.Context(command, info_name=name)
        usage = " ".join([*words, name, *command.collect_usage_pieces(context)])
        text = (
            inspect.cleandoc(command.help)
            .replace("\b\n", "")
            .replace("Examples:", "```", 1)
            .replace("Example:", "```", 1)
        )
        about, fence, example = text.partition("```")
        example, _, rest = example.partition("\n\n")
        shown = f"\n\n```bash\n{inspect.cleandoc(example)}\n```\n\n{rest}".rstrip() if fence else ""
        options = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
        rows = "".join(
            _option(one)
            for one in sorted(options, key=lambda one: isinstance(one, Rare))
            if not one.opts[-1].startswith("--help")
        )
        yield f"## {usage}\n\n{about.strip()}{shown}\n" + (f"\n| option | what |\n|---|---|\n{rows}" if rows else "")
        if isinstance(command, click.Group):
            yield from _of_commands(command, (*words, name))


def _option(one) -> str:
    value = "" if one.is_flag else f" {one.metavar or '|'.join(map(str, getattr(one.type, 'choices', ['N'])))}"
    default = f" [default: {one.default}]" if one.show_default and one.default is not None else ""
    return f"| `{', '.join(one.opts)}{value}` | {one.help}{default} |\n".replace("latest|all", "latest\\|all")


@pytest.mark.parametrize(
    ("page", "made"),
    [
        (TABLES_PAGE, tables),
        (FINDINGS, lambda: _FINDINGS_HEAD),
        (COMMANDS, command_reference),
        (COOKBOOK, cookbook),
        (FORMATS_PAGE, formats),
    ],
    ids=name_of,
)
def test_generated_pages_are_up_to_date(request, page, made):
    if request.config.getoption("--update-golden"):
        page.write_text(made(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == made(), "run pytest tests/test_docs.py --update-golden"


PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "sample_traces" / "README.md", ROOT / "skill" / "SKILL.md"]
)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        to = page.parent / target if target else page
        assert to.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)", to.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles}, anchor


def test_every_page_is_in_the_site():
    listed = re.findall(r"([\w/]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert {*DOCS.rglob("*.md")} == {DOCS / one for one in listed}


NOT_YET = re.compile(r"/(x|tiny_kernels)\.\w+$")
"""Files that a reader of the page is to write."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_the_documentation_names_are_there(page):
    rooms = "traceanalyzer|templates|tests|docs|experiments|benchmarks|sample_traces|skill|typings"
    named = re.findall(rf"`((?:{rooms})/[\w./-]+)`", page.read_text(encoding="utf-8"))
    assert [one for one in named if not (ROOT / one).exists() and not NOT_YET.search(one)] == []


def command_lines(text):
    """Words after `analyze-traces` of each line of the pages' blocks of code, up to where the shell goes on."""
    for block in re.findall(r"```\w*\n(.*?)```", text.replace("\\\n", " "), re.DOTALL):
        for line in re.findall(r"^\s*(?:- run: +)?(?:\$ )?analyze-traces +(.*)", block, re.MULTILINE):
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            yield list(itertools.takewhile(lambda word: word[0] not in "();<>|&", words))


def test_options_of_commands_in_the_documentation_exist():
    """Names of options and what can be chosen of them; files of the examples are nobody's."""
    lines = [words for page in PAGES for words in command_lines(page.read_text(encoding="utf-8"))]
    assert len(lines) > 40
    for words in lines:
        named, command = words, cli.commands["report"]
        if words[0] in cli.commands:
            command, named = cli.commands[words[0]], words[1:]
        while isinstance(command, click.Group) and named and named[0] in command.commands:
            command, named = command.commands[named[0]], named[1:]
        context = click.Context(command)
        given, *_ = command.make_parser(context).parse_args(list(named))
        for option in command.params:
            if isinstance(option.type, click.Choice) and option.name in given:
                option.type_cast_value(context, given[option.name])


@pytest.mark.parametrize("page", [page for page in PAGES if page != TABLES_PAGE], ids=name_of)
def test_columns_and_figures_that_the_documentation_names_exist(page):
    """Names that end in a unit; but for the changelog's, which may be of other days, and Python's examples'."""
    text = re.sub(r"```python.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(
        re.findall(r"(?<![\w.-])[a-z][a-z0-9]*(?:_[a-z0-9]+)*_(?:ns|pct|bytes|gbps|per_s|points)(?![\w(-])", text)
    )
    of_results = {name: column for one in ANALYSES.values() for name, column in one.result.columns.items()}
    aliases = {column.alias for column in of_results.values()}
    of_tables = {name for columns in TABLES.values() for name in columns}
    known = {*of_results, *aliases, *of_tables, *diff_metrics.BY_NAME, *diff_metrics.COLUMNS, *WHAT_IF_COLUMNS}
    known |= {*thresholds_of(ANALYSES), *dir(Saves), *dir(Answer)}
    if page.name != "CHANGELOG.md":
        assert named - known - _OTHERS == set()


_OTHERS = {"step_time_ns", "zero_ns", "delay_ns", "gain_ns", "gain_error_ns", "unprofiled_gain_ns", "interval_ns"}
"""Of run.json, of a page's data, of an example in SQL, and of findings, before version 3 too."""


def test_questions_that_the_skill_names_exist():
    """As in `query inspect FOLDER OPERATION`."""
    text = (ROOT / "skill" / "SKILL.md").read_text(encoding="utf-8")
    named = set(re.findall(r"query ([a-z][a-z-]*)", text))
    assert "inspect" in named
    assert named - {*cli.commands["query"].commands} == set()


def test_gates_of_the_documentation_make_sense():
    lines = [words for page in PAGES for words in command_lines(page.read_text(encoding="utf-8"))]
    gates = [(words[at + 1], words[0]) for words in lines for at, word in enumerate(words) if word == "--fail-on"]
    assert len(gates) > 5
    for text, command in gates:
        check_names([parse(text)], of_comparison=command == "diff")


def test_every_command_has_an_example():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *DOCS.rglob("*.md")])
    for name in cli.commands:
        assert name == "report" or f"analyze-traces {name}" in pages, name


def test_the_analysis_and_the_finding_of_extending_work():
    analysis, kinds = example("An analysis"), example("A finding")
    traces = [rank_trace([("compute", 0, 4000), ("compute", 5000, 20000), ("comm", 0, 10)])]
    result = analysis.TinyKernels.of_ranks({trace.rank: analysis.per_rank(trace) for trace in traces})
    assert result.rows() == [{"rank": 0, "kernels": 2, "tiny": 1, "tiny_pct": 50.0}]
    run = Run({}, None, None, pd.Series(dtype="float64"))
    (found,) = kinds.small_kernels(run, result)
    assert found.headline == "CPU-bound: 50% of the kernels are shorter than a launch."
    assert list(kinds.small_kernels(run, result.where(tiny=0))) == []


def test_the_reader_of_extending_works(tmp_path, monkeypatch):
    reader = example("An input format")
    monkeypatch.setattr("traceanalyzer.readers.READERS", (reader, *READERS))
    for rank in (0, 1):
        rows = ["start_us,duration_us,name,stream", "0,10,gemm,7", "5,20,ncclDevKernel_AllReduce_Sum_bf16_RING_LL,9"]
        (tmp_path / f"rank{rank}.kernels.csv").write_text("\n".join(rows))
    (tmp_path / "rank2.kernels.csv").write_text("something,else\n1,2\n")
    traces = ta.load(tmp_path)
    assert [trace.rank for trace in traces] == [0, 1]
    assert "no table of kernels" in traces.skipped[0].why
    row = ta.breakdown(traces).rows()[1]
    assert (row["compute_ns"], row["exposed_comm_ns"], row["window_ns"]) == (10_000, 15_000, 25_000)
    assert all(list(trace.table(name)) == list(columns) for trace in traces for name, columns in TABLES.items())
    assert len(ta.analyse(traces)) == len(ANALYSES)
