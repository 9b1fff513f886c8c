"""Diagnoses before, and without, a trace: topology, NCCL logs, flight recorder, monitors, RAS.

from pathlib import Path
from traceanalyzer.doctor import examine

for diagnosis in examine(topo=Path("topo.txt"), nccl_logs=[Path("logs")]).diagnoses:
    print(diagnosis.severity, diagnosis.diagnosis)
"""

from traceanalyzer.doctor.examination import RULES, Examination, diagnose, examine
from traceanalyzer.doctor.flight_recorder import FlightRecorder, read_flight_recorder
from traceanalyzer.doctor.knowledge import Case, Diagnosis
from traceanalyzer.doctor.monitors import Monitors, read_monitors
from traceanalyzer.doctor.nccl_log import NcclLog, read_logs
from traceanalyzer.doctor.topology import Topology, parse_topology

__all__ = [
    "RULES",
    "Case",
    "Diagnosis",
    "Examination",
    "FlightRecorder",
    "Monitors",
    "NcclLog",
    "Topology",
    "diagnose",
    "examine",
    "parse_topology",
    "read_flight_recorder",
    "read_logs",
    "read_monitors",
]
