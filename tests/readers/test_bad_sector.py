"""A disk that fails in the middle of a file, under Python's reading and that of libraries in C: it is said."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import nsys_builders
from tests.builders import document, host, kernel, write
from tests.fuzz import seeds

FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* Of files in a folder named `failing` the second and third quarter cannot be read; reads before end there. */
static size_t room(int fd, off_t at, size_t count) {
    char link[64], path[4096];
    struct stat about;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || at < 0) return count;
    path[length] = 0;
    if (!strstr(path, "/failing/") || fstat(fd, &about) || !S_ISREG(about.st_mode)) return count;
    off_t bad = about.st_size / 4;
    if (at >= 3 * bad || at + (off_t)count <= bad) return count;
    return at >= bad ? 0 : (size_t)(bad - at);
}
#define FAIL do { errno = EIO; return -1; } while (0)
ssize_t read(int fd, void *to, size_t count) {
    ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    size_t may = count ? room(fd, lseek(fd, 0, SEEK_CUR), count) : 0;
    if (count && !may) FAIL;
    return real(fd, to, may);
}
ssize_t pread64(int fd, void *to, size_t count, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    size_t may = count ? room(fd, at, count) : 0;
    if (count && !may) FAIL;
    return real(fd, to, may, at);
}
ssize_t pread(int fd, void *to, size_t count, off_t at) { return pread64(fd, to, count, at); }
"""

LOOK = """
import json, sys
from pathlib import Path
from traceanalyzer.discovery import discover
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale import summarise
told = {}
for place in sorted(Path("failing").iterdir()):
    try:
        found = discover(place)
        made = summarise(found, found.runs[-1], LoadOptions(), names=["integrity", "ranks", "kernels"], jobs=1)
    except TraceAnalyzerError as error:
        told[place.name] = {"error": str(error)}
        continue
    told[place.name] = {
        "ranks": [row["rank"] for row in made.results["ranks"].rows()],
        "kernels": sum(row["calls"] for row in made.results["kernels"].rows()),
        "checks": [row["check"] for row in made.results["integrity"].rows()],
        "skipped": [one.why for one in made.skipped],
    }
print(json.dumps(told))
"""

KERNELS = 400


def texts():
    events = [event for number in range(1, KERNELS + 1) for event in (
        host(30 * number, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number),
        kernel(30 * number + 5, 20, correlation=number),
    )]  # fmt: skip
    return json.dumps(document(events, rank=0, world_size=1)).encode()


def job(folder):
    write(folder / "plain" / "rank0.json", texts())
    (folder / "packed").mkdir()
    (folder / "packed" / "rank0.json.gz").write_bytes(gzip.compress(texts()))
    for name in ("sqlite", "parquet"):
        (folder / name).mkdir()
    nsys_builders.write_sqlite(folder / "sqlite" / "a.sqlite", seeds.nsys_tables())
    nsys_builders.write_parquet(folder / "parquet" / "a_pqtdir", seeds.nsys_tables())


@pytest.mark.skipif(not shutil.which("cc") or not sys.platform.startswith("linux"), reason="no compiler, or no Linux")
def test_a_read_error_in_the_middle_of_a_trace_is_said(tmp_path):
    job(tmp_path / "failing")
    (tmp_path / "failing.c").write_text(FAILING)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", "failing.so", "failing.c", "-ldl"], cwd=tmp_path, check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(tmp_path / "failing.so"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    made = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, "")
    told = json.loads(made.stdout)
    for name in ("plain", "packed"):
        assert (told[name]["ranks"], "truncated" in told[name]["checks"]) == ([0], True)
        assert KERNELS / 8 < told[name]["kernels"] <= KERNELS / 2, name  # those of the first quarter
    assert "Input/output error" in told["parquet"]["error"]
    assert "a.sqlite: the database cannot be read" in told["sqlite"]["error"]
