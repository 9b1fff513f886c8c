"""What can be said before, and without, a trace: topology, NCCL logs, flight recorder, Inspector, RAS, xpu_timer.

from pathlib import Path
from traceanalyzer.doctor import examine

for diagnosis in examine(topo=Path("topo.txt"), nccl_logs=[Path("logs")]).diagnoses:
    print(diagnosis.severity, diagnosis.diagnosis)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.doctor.case import Case
    from traceanalyzer.doctor.diagnosis import Diagnosis
    from traceanalyzer.doctor.examination import Examination, examine, examine_texts
    from traceanalyzer.doctor.flight_recorder import FlightRecorder, read_flight_recorder
    from traceanalyzer.doctor.inspector import Inspector, read_inspector
    from traceanalyzer.doctor.nccl_log import NcclLog
    from traceanalyzer.doctor.nccl_reading import read_logs
    from traceanalyzer.doctor.rules import RULES, diagnose
    from traceanalyzer.doctor.topology import Topology, parse_topology
    from traceanalyzer.doctor.xpu_timer import XpuTimer, read_xpu_timer

__all__ = [
    "RULES",
    "Case",
    "Diagnosis",
    "Examination",
    "FlightRecorder",
    "Inspector",
    "NcclLog",
    "Topology",
    "XpuTimer",
    "diagnose",
    "examine",
    "examine_texts",
    "parse_topology",
    "read_flight_recorder",
    "read_inspector",
    "read_logs",
    "read_xpu_timer",
]

_HOMES = {
    "Case": "case",
    "Diagnosis": "diagnosis",
    "Examination": "examination",
    "FlightRecorder": "flight_recorder",
    "Inspector": "inspector",
    "NcclLog": "nccl_log",
    "RULES": "rules",
    "Topology": "topology",
    "XpuTimer": "xpu_timer",
    "diagnose": "rules",
    "examine": "examination",
    "examine_texts": "examination",
    "parse_topology": "topology",
    "read_flight_recorder": "flight_recorder",
    "read_inspector": "inspector",
    "read_logs": "nccl_reading",
    "read_xpu_timer": "xpu_timer",
}


def __getattr__(name: str) -> Any:
    """What is named above, when it is asked for: a report looks for logs first, and most runs have none."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
