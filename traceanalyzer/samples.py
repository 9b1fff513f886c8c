"""Sample captures in the package, to try it without a GPU."""

from pathlib import Path

from traceanalyzer.errors import UsageError

SAMPLES = ("pp_1f1b", "simple_ddp", "pytorch_ddp")
"""Those in the wheel; the source tree has more."""


def sample(name: str = SAMPLES[0]) -> Path:
    """Folder of a capture of two H200 GPUs: a 1F1B pipeline, or data parallelism without and with overlap.

        ta.load(ta.sample())

    Raises:
        UsageError: no capture has that name.
    """
    package = Path(__file__).resolve().parent
    inside = package / "sample_traces"
    places = inside if inside.is_dir() else package.parent / "sample_traces"
    if name not in SAMPLES or not (places / name).is_dir():
        raise UsageError(f"no sample is called {name!r}; available: {', '.join(SAMPLES)}")
    return places / name
