"""Tables of the studies from their runs and reports: `python experiments/results.py [profile reports docs/results]`.

`profile/<set>/<run>/run.json` has what was measured without a profiler, `reports/<set>/<run>/tables/` what the
analyser says of the capture. Each figure becomes `<name>.svg`, each table `<name>.csv`, and replaces what README.md has
between `<!-- table: <name> -->` and `<!-- end -->`. What was read for them is kept in `docs/results/runs/<set>/<run>/`,
from which `python experiments/results.py --kept` makes them again without any trace.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from measured.breakdown import breakdown
from measured.cells import markdown
from measured.copies import broadcast, offload
from measured.figures import active_memory, blocks
from measured.forecasts import forecast, projected
from measured.kernels import by_category, by_operator
from measured.pipelines import by_split, pipeline
from measured.runs import Run, runs_of
from measured.throughput import against_one_gpu, batch_sweep, over_runs
from measured.traffic import calls_per_step, collectives
from sets import SETS

if TYPE_CHECKING:
    from collections.abc import Callable

Sets = dict[str, list[Run]]

KEPT = "runs"

TABLES: dict[str, Callable[[Sets], Any]] = {
    "a_breakdown": lambda sets: (breakdown(run) for run in sets["A"] if run.name == run.label),
    "a_repeats": lambda sets: over_runs(sets["A"]),
    "a_calls": lambda sets: map(calls_per_step, sets["A"]),
    "a_collectives": lambda sets: (row for run in sets["A"] for row in collectives(run)),
    "a_pipelines": lambda sets: (pipeline(run) for run in sets["A"] if run.name == run.label),
    "b_breakdown": lambda sets: (breakdown(run) for run in sets["B"] if run.is_analysed),
    "b_categories": lambda sets: by_category(sets["B"]),
    "b_operators": lambda sets: by_operator(sets["B"]),
    "b_scaling": lambda sets: against_one_gpu(sets["B"]),
    "b_projection": lambda sets: projected(sets["B"]),
    "b_sweep": lambda sets: batch_sweep(sets["B"]),
    "b_collectives": lambda sets: (row for run in sets["B"] for row in collectives(run)),
    "c_offload": lambda sets: map(offload, sets["C"]),
    "d_broadcast": lambda sets: (row for run in sets["D"] for row in broadcast(run)),
    "d_breakdown": lambda sets: (breakdown(run) for run in sets["D"] if run.is_analysed and run.facts["model"]),
    "d_pipeline": lambda sets: (pipeline(run) for run in sets["D"] if run.name == run.label),
    "d_splits": lambda sets: by_split(sets["D"]),
    "d_repeats": lambda sets: over_runs(sets["D"]),
    "h200_seeds": lambda sets: over_runs(sets["D-H200"]),
    "h200_exchange": lambda sets: (
        breakdown(run) | {"run": run.label} for run in _analysed(sets["D-H200"]) if run.facts["parallel"]["pp"] == 1
    ),
    "h200_stages": lambda sets: map(pipeline, _analysed(sets["D-H200"])),
    "h200_sweep": lambda sets: batch_sweep(sets["B-H200"]),
    "a_forecasts": lambda sets: forecast(sets["A"]),
    "b_forecasts": lambda sets: forecast(sets["B"]),
    "c_forecasts": lambda sets: forecast(sets["C"]),
    "d_forecasts": lambda sets: forecast(sets["D"]),
}

FIGURES: dict[str, Callable[[Sets], str]] = {
    "b_memory": lambda sets: active_memory(sets["B"]),
    "c_blocks": lambda sets: blocks(sets["C"]),
}


def _analysed(runs: list[Run]) -> list[Run]:
    return [run for run in runs if run.is_analysed]


def _filled(text: str, name: str, table: str) -> str:
    """The text with the table between its marks."""
    marks = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
    return re.sub(marks, lambda found: found[1] + table + found[2], text, flags=re.DOTALL)


def main() -> None:
    """Write every table that the runs allow, and keep what they were made of."""
    is_again, places = "--kept" in sys.argv, [Path(text) for text in sys.argv[1:] if text != "--kept"]
    target = places[-1] if places else Path("docs/results")
    kept = target / KEPT
    captures, reports = (kept, kept) if is_again else places[:2] or (Path("profile"), Path("reports"))
    readme = target / "README.md"
    text = readme.read_text() if readme.exists() else ""
    sets: Sets = {name: [] for name in (*SETS, "B-H200", "D-H200")}
    for folder in sorted(path for path in captures.iterdir() if path.is_dir()):
        sets[folder.name] = list(runs_of(folder, reports))
    for name, make in TABLES.items():
        rows = [row for row in make(sets) if row]
        if rows:
            table = pd.DataFrame(rows)
            table.to_csv(target / f"{name}.csv", index=False)
            text = _filled(text, name, markdown(table))
    readme.write_text(text)
    for name, draw in FIGURES.items():
        drawn = draw(sets)
        if drawn:
            (target / f"{name}.svg").write_text(drawn)
    for name, runs in () if is_again else sets.items():
        for run in runs:
            run.keep(kept / name / run.name)


if __name__ == "__main__":
    main()
