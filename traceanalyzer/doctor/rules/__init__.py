"""The doctor's rules: each takes the case and gives what it has to say."""

from collections.abc import Callable
from dataclasses import replace

from traceanalyzer.doctor.case import Case
from traceanalyzer.doctor.diagnosis import Diagnosis
from traceanalyzer.doctor.rules import health, hours, hung, job, metrics, network, paths
from traceanalyzer.meaning.severities import SEVERITIES

RULES: tuple[Callable[[Case], list[Diagnosis]], ...] = (
    hung.rank_never_came,
    hung.mismatched_calls,
    hung.open_send_recv,
    hung.ranks_without_dump,
    hung.open_everywhere,
    paths.suspected_p2p_failure,
    job.init_incomplete,
    job.mixed_versions,
    job.timeouts,
    paths.nvlink_unused,
    paths.p2p_off,
    paths.shm_off,
    network.sockets_across_nodes,
    network.no_gpudirect,
    network.far_nic,
    paths.few_channels,
    job.warnings,
    hours.ras_troubles,
    metrics.reported_hang,
    hours.often_last,
    metrics.waited_for,
    metrics.slow_products,
    hours.bandwidth_drops,
    job.settings,
    health.topology_in_words,
    health.log_in_words,
    health.recorder_in_words,
)
"""In the order in which they speak among equals in severity."""


def diagnose(case: Case) -> tuple[Diagnosis, ...]:
    """All that the rules say, the most severe first."""
    said = [replace(diagnosis, rule=rule.__name__) for rule in RULES for diagnosis in rule(case)]
    return tuple(sorted(said, key=lambda one: SEVERITIES.index(one.severity)))
