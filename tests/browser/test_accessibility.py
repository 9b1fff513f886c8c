"""axe-core finds nothing serious, in either theme and with every table open."""

import shutil
import subprocess
import tarfile

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """axe-core's script from the npm registry; it weighs half a megabyte, so it is not kept here."""
    if shutil.which("npm") is None:
        pytest.skip("no npm on this machine to fetch axe-core with")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        ["npm", "pack", "axe-core@4"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode:
        pytest.skip(f"npm cannot fetch axe-core: {done.stderr.strip()[-200:]}")
    with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode("utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["ddp", "moe"])
def test_axe_finds_nothing_serious(name, scheme, axe, written, opened):
    _, path = written(name)
    with opened(path, color_scheme=scheme) as page:
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        page.evaluate(axe)
        found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        serious = [
            (rule["id"], rule["help"], [node["html"][:120] for node in rule["nodes"][:3]])
            for rule in found["violations"]
            if rule["impact"] in ("serious", "critical")
        ]
        assert serious == []
