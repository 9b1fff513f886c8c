"""Commands, their help, their old names, and what build servers read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.builders import document, kernel, write
from tests.cli import typed
from tests.samples import SAMPLES
from traceanalyzer.cli import cli, run
from traceanalyzer.cli.options import Rare


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "job" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))


def commands(group=cli, words=()):
    """Each command with its words, groups included."""
    for name, command in group.commands.items():
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


@pytest.mark.parametrize(
    ("words", "command"), [((), cli), *commands()], ids=lambda one: " ".join(one) if isinstance(one, tuple) else ""
)
def test_help_is_short_and_help_all_has_the_rest(words, command):
    asked = CliRunner().invoke(cli, [*words, "--help"])
    assert (asked.exit_code, bool(command.help)) == (0, True)
    shown = [line for line in asked.output.split("Options:")[1].splitlines() if line.startswith("  -")]
    assert len(shown) <= 14, shown
    if any(isinstance(one, Rare) for one in command.params):
        assert "More options:" in CliRunner().invoke(cli, [*words, "--help-all"]).output
    options = {name for one in command.params for name in one.opts}
    assert not {"--kind", "--out", "--step"} & options
    assert "--rank" not in options or words == ("what-if",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("steps job --rank 0", "query steps job --ranks 0", "steps is now analyze-traces query steps."),
        ("inspect job 0 aten::mm --top 3", "query inspect job aten::mm --ranks 0 --top 3", "query inspect."),
        ("tree-diff job job --rank=0", "tools tree-diff job job --ranks 0", "--rank is now --ranks."),
        ("doctor topo.txt --out x --json", "doctor topo.txt --output x --json", "--out is now --output."),
    ],
)
def test_an_old_name_does_the_same_and_says_the_new_one(capsys, old, new, said):
    Path("job").rename("small")
    Path("job").symlink_to(SAMPLES / "moe")
    Path("topo.txt").write_bytes((SAMPLES / "doctor" / "topo_2xH200_nvlink.txt").read_bytes())
    assert run(old.split()) == 0
    first = capsys.readouterr()
    assert said in first.err
    assert run(new.split()) == 0
    second = capsys.readouterr()
    assert (second.out, "is now" in second.err) == (first.out, False)


def test_json_is_all_that_is_printed(capsys):
    assert typed("job --json -o out --format html --fail-on 'idle_pct > 200'") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["ranks"] == [0]
    assert "PASSED" in said.err
    assert typed("diff job job --json -o both --format csv") == 0
    assert json.loads(capsys.readouterr().out)["base"] == "job"


def test_gates_become_annotations_in_github_actions(monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    gates = ["--fail-on", "idle_pct > -1", "--fail-on", "idle_pct > 200", "--fail-on", "overlap_pct < 50"]
    assert run(["job", *gates, "-q", "-o", "out", "--format", "json"]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::")]
    assert [line.split(": ")[:2] for line in said] == [
        ["::error title=Performance gate::job", "idle_pct > -1"], ["::error title=Performance gate::job", "overlap_pct < 50"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "found"),
    [("wha", "what-if"), ("--sc", "--scheduler"), ("job --st", "--step-range"), ("query w", "why-waiting")],
)
def test_completion(typed, found):
    environment = {**os.environ, "_ANALYZE_TRACES_COMPLETE": "bash_complete", "COMP_WORDS": f"analyze-traces {typed}",
                   "COMP_CWORD": str(len(typed.split()))}  # fmt: skip
    code = "import sys; from traceanalyzer.cli import main; main([])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert found in done.stdout, done.stderr
