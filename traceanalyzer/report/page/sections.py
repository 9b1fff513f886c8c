"""Which Result stands where on the page, and with which template."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.names import ResultName
from traceanalyzer.report import assets

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "time": "Where each rank’s time goes",
        "findings": "Findings",
        "what_if": "What if",
        "communication": "Communication",
        "idle": "Idle and launches",
        "kernels": "Kernels and operators",
        "streams": "Streams and copies",
        "pipeline": "Pipeline",
        "memory": "Memory",
        "more": "More figures",
        "about": "Integrity, window, definitions",
    }
)
"""The page's parts in order, with their headings."""

PLACES: Mapping[str, tuple[ResultName, ...]] = MappingProxyType(
    {
        "time": (
            "pipeline_schedule",
            "even_experts",
            "expert_layers",
            "headline",
            "time_parts",
            "over_ranks",
            "unlike_ranks",
            "steps",
            "steps_over_ranks",
            "host_steps",
            "cpu_step_parts",
            "cpu_steps",
            "iterations",
            "breakdown",
            "phases",
            "balance",
            "gpu_utilization",
        ),
        "what_if": ("what_ifs", "path_over_ranks", "critical_path", "slack", "slowdown", "replay"),
        "communication": (
            "by_collective",
            "nccl",
            "calls",
            "episodes",
            "stragglers",
            "exchange_receivers",
            "exchange_sends",
            "groups",
            "collective_waits",
            "collectives",
            "overlap",
            "comm_phases",
            "exposed_comm",
            "matches",
        ),
        "idle": (
            "queue_depth",
            "idle",
            "host_work_over_ranks",
            "host_work",
            "host_silences",
            "compilations",
            "host_meetings",
            "launches",
            "first_calls",
            "sync_calls",
            "sync_copies",
            "cuda_api",
            "gpu_gaps",
            "gaps",
        ),
        "kernels": (
            "kernels_over_ranks",
            "kernels",
            "nvtx_projection",
            "categories",
            "mfu",
            "modules",
            "fusions",
            "graphs",
            "operators_over_ranks",
            "operators",
            "operator_kernels",
            "matrix_products",
            "efficiency",
        ),
        "streams": ("streams", "stream_pairs", "copies", "block_bounds", "memory_ops"),
        "pipeline": ("pipelines", "pipeline"),
        "memory": (
            "memory",
            "memory_peaks",
            "memory_categories",
            "memory_steps",
            "memory_sources",
            "memory_calls",
            "memory_fit",
            "gpu_metrics",
        ),
        "about": ("integrity", "ranks", "clocks"),
    }
)
"""The Results of each part in the order in which they stand there; one that is named nowhere stands under "more"."""

WITHIN: Mapping[str, ResultName] = MappingProxyType({"kernels": "kernels_over_ranks", "nccl": "by_collective"})
"""Results of each rank that the section of another one, of all ranks, shows folded, where that one has rows."""


@dataclass(frozen=True, slots=True)
class Section:
    """One Result's place on the page, and the template that draws it.

    `is_folded`: the template has no heading, so it is a folded table; several of a part stand behind one line.
    """

    name: str
    template: str
    part: str
    is_folded: bool


def sections(results: Results) -> list[Section]:
    """A section for each Result with rows; one with a row for each event only where it is given a place."""
    placed: dict[str, str] = {name: part for part, names in PLACES.items() for name in names}
    order = [*placed, *(name for name in results if name not in placed)]
    return [
        Section(
            name, template := _template(name), placed.get(name, "more"), is_folded="<h3" not in assets.read(template)
        )
        for name in order
        if name in results and _is_shown(results[name], is_placed=name in placed) and not _is_within(name, results)
    ]


def _template(name: str) -> str:
    own = f"sections/{name}.html"
    return own if (assets.templates() / own).is_file() else "sections/default.html"


def _is_within(name: str, results: Results) -> bool:
    other: str = WITHIN.get(name, name)
    return other != name and other in results and _is_shown(results[other], is_placed=True)


def _is_shown(result: Result, *, is_placed: bool) -> bool:
    return bool(len(result)) and (is_placed or not result.is_detail) and not _says_nothing(result)


def _says_nothing(result: Result) -> bool:
    """Whether a table has but numbers beside its keys, and none that is known and not 0."""
    frame = result.to_frame()
    own = [frame[column] for column in result.columns if column not in result.keys]
    if not own or not {column.dtype.kind for column in own} <= set("iuf"):
        return False
    return not any(column.to_numpy(dtype="float64", na_value=0).any() for column in own)
