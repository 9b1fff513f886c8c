"""Modules put together: their order and names."""

import shutil
import subprocess
from pathlib import Path

import pytest

from traceanalyzer.report import assets
from traceanalyzer.report.assets import bundled

NODE = shutil.which("node")
ROOT = Path(__file__).parents[2]


def made(entry, **files):
    return bundled(entry, lambda path: files[path.replace("/", "_").removesuffix(".js")])


def printed(script):
    if NODE is None:
        pytest.skip("no node on this machine to run a script with")
    return subprocess.run([NODE, "-e", script], capture_output=True, text=True, check=True).stdout.split()


def test_a_module_runs_once_after_those_that_it_imports():
    script = made(
        "a.js",
        a='import { one } from "./in/b.js";\nimport { two as three } from "./c.js";\nconsole.log(one, three);\n',
        in_b='import { two } from "../c.js";\nconsole.log("b");\nexport const one = two - 1;\n',
        c='console.log("c");\nexport const two = 2;\n',
    )
    assert printed(script) == ["c", "b", "1", "2"]


def test_names_of_a_module_are_its_own():
    script = made(
        "a.js",
        a='import { f } from "./b.js";\nconst hidden = 1;\nconsole.log(f(), hidden);\n',
        b="const hidden = 2;\nexport function f() {\n  return hidden;\n}\n",
    )
    assert printed(script) == ["2", "1"]


def test_comments_of_whole_lines_are_left_out_and_texts_kept():
    script = made("a.js", a='// why\n/** @param {number} x */\nconst f = (x) => `${x} // "kept" /* too */`;\nf(1);\n')
    assert "why" not in script
    assert "@param" not in script
    assert '`${x} // "kept" /* too */`' in script


@pytest.mark.parametrize("entry", ["run.js", "comparison.js", "plain.js"])
def test_the_script_of_each_page_is_one_that_node_can_parse(entry, tmp_path):
    script = assets.script(entry)
    assert assets.sha256(script.text) == script.hash
    assert "</script" not in script.text
    if NODE is None:
        pytest.skip("no node on this machine to parse a script with")
    (tmp_path / "page.js").write_text(script.text, encoding="utf-8")
    subprocess.run([NODE, "--check", tmp_path / "page.js"], check=True)


def test_the_pure_parts_of_the_scripts_pass_their_own_tests():
    if NODE is None:
        pytest.skip("no node on this machine to run the scripts' tests with")
    done = subprocess.run([NODE, "--test", "tests/scripts/"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
