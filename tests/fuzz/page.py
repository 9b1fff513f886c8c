"""The page on reliability, from what campaigns and tests last gave.

python -m tests.fuzz --result tests/fuzz/result.json     # campaigns; hours
pytest tests/readers/test_kineto_salvage.py tests/cli/test_faults.py tests/cli/test_hostile.py \\
    tests/analyses/time/test_against_counting.py tests/analyses/*/test_*_counted.py \\
    tests/analyses/test_what_changes_no_table.py tests/fuzz/test_quick.py tests/doctor/test_links.py tests/snapshots/test_job.py \\
    tests/cli/test_odd_inputs.py tests/readers/test_bad_sector.py tests/cli/test_debug.py tests/files/test_whole.py \\
    tests/doctor/test_flight_recorder.py tests/doctor/test_nccl_reading.py tests/doctor/test_xpu_timer.py tests/gate/test_not_fooled.py \\
    tests/analyses/integrity/test_integrity.py tests/agents/test_answers.py tests/loading/test_cache.py \\
    --junitxml faults.xml
python -m tests.fuzz.page faults.xml                     # takes both up in docs/contributing/reliability.md
"""

import json
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from tests.fuzz.outcome import BUGS, FINE

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "tests" / "fuzz" / "result.json"
PAGE = ROOT / "docs" / "contributing" / "reliability.md"

KINDS = {
    "test_a_text_cut_anywhere_gives_every_whole_event": ("Kineto JSON cut at any byte", "partial and reported; refused where no event is whole"),
    "test_a_gzip_cut_anywhere_gives_every_whole_event_that_it_holds": ("gzip cut at any byte", "partial and reported; refused where no event is whole"),
    "test_other_encodings": ("UTF-16, byte order marks", "right"),
    "test_texts_as_they_are_found": ("NUL padding, commas, brackets, NaN, doubled keys, odd numbers, missing ids, joined files", "right; else partial and reported"),
    "test_a_text_without_end_does_not_fill_the_memory": ("an event without end", "partial and reported"),
    "test_a_full_disk_is_said_and_the_older_report_stays": ("full disk", "refused; the older report stays"),
    "test_a_full_disk_is_said_of_single_files_too": ("the same under an export, a cut, a script, a baseline", "refused; nothing is left"),
    "test_no_permission_is_said": ("no permission for output, for one rank's file or folder, for all", "refused; partial and reported"),
    "test_a_signal_leaves_nothing_half_written": ("Ctrl-C, SIGTERM", "ended; nothing half-written, no process left"),
    "test_a_killed_worker_costs_no_other_file": ("killed worker", "partial and reported"),
    "test_a_reader_that_fails_costs_its_file_only": ("a reader that raises", "partial and reported"),
    "test_too_little_memory_is_no_bug": ("too little memory", "refused"),
    "test_two_runs_into_one_folder_leave_one_whole_report": ("two runs into one folder", "right: one of them, whole"),
    "test_two_writers_at_once_leave_one_whole_file": ("two writers of one file", "right: one of them, whole"),
    "test_a_link_out_of_the_folder_is_not_written_through": ("a link out of the output folder", "refused"),
    "test_links_out_of_a_folder_of_traces_are_followed_on_request_only": ("a link out of a folder of traces", "skipped and reported"),
    "test_links_to_snapshots_outside_are_followed_on_request_only": ("the same to a memory snapshot", "skipped and reported"),
    "test_links_to_logs": ("links to logs outside a folder of the doctor's", "refused, or skipped and reported; `--follow-links` reads them"),
    "test_links_to_dumps": ("the same to dumps", "skipped and reported"),
    "test_a_file_that_cannot_be_read_keeps_none_of_the_others_from_the_report": ("a cut memory snapshot among others", "partial and reported; a gate does not pass"),
    "test_commands_replace_their_own_files_only": ("a file of another's where an export goes", "refused; `--force` replaces it"),
    "test_files_that_change_while_they_are_read_are_said": ("a file that changes while it is read", "reported"),
    "test_odd_surroundings": ("no home, terminals of one column", "right"),
    "test_nobody_listens": ("full, closed or broken standard output", "right"),
    "test_all_formats_are_there": ("hostile names, through HTML, CSV, JSON, JUnit, Markdown, terminal and Perfetto", "right"),
    "test_no_control_or_turning_character_anywhere": ("control and direction characters in them", "right: a mark instead"),
    "test_names_are_text_in_the_page": ("markup in them, page and policy", "right: text"),
    "test_no_cell_is_a_formula": ("formulae in CSV", "right: text"),
    "test_no_link_image_or_mention_is_live_in_a_pull_request": ("links, images and mentions in gate.md", "right: text"),
    "test_the_option_that_names_a_kernel_runs_nothing_when_it_is_pasted": ("quotes and commands in a kernel's name that advice repeats", "right: one word of a shell"),
    "test_no_row_and_no_sentence_breaks_the_bound": ("rows and sentences of 20,000 characters and more in an assistant's answer", "cut and reported"),
    "test_a_damaged_entry_is_as_none": ("a bit flipped, a half lost, a file lost in the cache of read traces", "right: read anew"),
    "test_structured_files_can_be_read": ("the same in JSON and XML", "right"),
    "test_nothing_is_written_by_a_name_of_the_trace": ("path separators in names", "right"),
    "test_names_that_steer_a_terminal_or_the_direction_of_writing_are_marked": ("such names in a flight recorder's dumps, page and JSON", "right: a mark instead"),
    "test_what_is_no_number_is_left_out": ("metrics of xpu_timer that are no numbers", "left out"),
    "test_a_communicator_of_more_ranks_than_there_can_be_is_damage": ("an NCCL log of 2,999,999,999,999 ranks", "left out"),
    "test_no_text_of_a_real_capture_is_in_it": ("`--debug` of a real capture, looked through for each of its texts", "none is in it"),
    "test_nothing_asks_the_network": ("sockets that fail, under a report, an export, a summary", "right: none is asked for"),
    "test_less_than_the_job_does_not_pass": ("gates over cut, empty, missing and doubled ranks", "does not pass"),
    "test_a_typo_does_not_pass": ("gates with typos, and thresholds that are no numbers", "refused, or does not pass"),
    "test_a_comparison_with_less_than_a_job_does_not_pass": ("the same damage under gates of a comparison", "does not pass"),
    "test_breakdowns_are_those_of_counting": ("a hundred random traces each, counted nanosecond by nanosecond", "right"),
    "test_what_changes_nothing": ("moved in time, permuted, spaced, packed, as an Nsight export, summed by SQL", "right"),
    "test_names_of_ranks_change_no_figure": ("ranks of other numbers", "right"),
    "test_operators_are_those_looked_up_one_by_one": ("operators of ten random ranks, each event looked up by itself", "right"),
    "test_kernels_are_those_counted": ("kernels of ten random ranks, counted", "right"),
    "test_copies_are_those_counted": ("copies of ten random ranks, counted piece by piece of the time", "right"),
    "test_causes_of_idle_time_are_those_counted": ("causes of idle time of twenty random ranks, counted piece by piece", "right"),
    "test_peaks_are_those_counted": ("peaks of memory of ten random ranks", "right"),
    "test_transfer_and_wait_are_those_of_the_definition": ("transfer and wait of eight random jobs whose instances are known", "right, or ambiguous and reported"),
    "test_what_changes_no_table": ("these tables of three pairs of random ranks, moved in time, permuted, of other numbers", "right"),
    "test_a_read_error_in_the_middle_of_a_trace_is_said": ("a disk that fails in the middle: Kineto plain and gzip; SQLite and Parquet of Nsight", "partial and reported; refused"),
    "test_what_is_odd_is_said": ("run.json of other ranks, impossible memory, bandwidths, sizes, ids and times, archives and names that lead out, pipes, circles of links", "right, or partial and reported"),
    "test_what_nobody_stored_is_not_read": ("a view without end, a generated column, in a database", "partial and reported"),
    "test_a_snapshot_that_holds_itself_is_refused": ("a memory snapshot that holds itself", "refused"),
    "test_no_small_file_takes_long_by_the_clock": ("six damaged files of each reader, by the clock", "none over 10 s"),
}  # fmt: skip
"""Test → the kind of fault, and what it checks that becomes of it."""

_HEAD = """# Damaged and hostile inputs

Made by `python -m tests.fuzz.page`. *Right*: everything in the file is read. *Partial, reported*: the report counts what is left out.
*Refused*: one sentence names the file and what to do, exit code 2. A traceback, more than 10 s on a small file, or a wrong figure without
a note would be a bug; these cases found none.

## Damaged inputs

Mutations are drawn at random by kind. Kineto files are also compared with a slow reader built on the standard library; other inputs are
only checked for crashes, hangs and impossible values. Counts are of the last campaigns of each input. `python -m tests.fuzz` runs ten
thousand of each; a few of each, and every case that once failed, are tests. Among the damages are odd headers of archives, thousands of
nested events, generated columns, repeated rows, clocks of GPUs and ranks moved, stretches without kernels, ranks renamed and doubled;
every `run.json` has its page rendered.

| input | cases | right | partial, reported | refused | bugs |
|---|---:|---:|---:|---:|---:|
"""

_FAULTS = """
## Faults, and files as they are found

| kind of fault | cases tried | outcome | test |
|---|---:|---|---|
"""

_TAIL = """
## Installations

On 2026-11-22, on Linux, the lowest allowed versions of the direct dependencies with Python 3.12 and the highest with Python 3.13 wrote
the same `summary.json` of two samples. A read-only package folder works. Dependencies were not audited; run
`pip-audit --skip-editable` before a release.

## Not covered

- Campaigns guided by coverage (`python -m tests.fuzz.guided`) ran for one minute on three targets only.
- Few cases go through all analyses: a case takes a second.
- Small files of very many events are read in full: 2.5 million operators inside each other, packed into 0.3 MB, took 12 s of CPU time.
- A GPU clock that differs from its host's shows only where at least 100 operations find their GPU idle.
- "A worker ended" in 8 of 5,008 memory snapshots; 37,000 later cases did not show it again, and the cause is unknown.
- A long capture whose profiler clock drifts: nothing in the file shows it.
- Windows and macOS: signals, locks and memory limits were tried on Linux only.
"""


def page(result: dict[str, dict[str, object]], tests: Counter[str]) -> str:
    """The page's text."""
    rows = [
        f"| {own['what']} | {_sum(own, (*FINE, *BUGS)):,} | " + " | ".join(f"{_sum(own, (what,)):,}" for what in FINE) + f" | {_sum(own, BUGS)} |"
        for own in result.values()
    ]  # fmt: skip
    faults = [
        f"| {kind} | {tests[name]:,} | {outcome} | `{name}` |" for name, (kind, outcome) in KINDS.items() if tests[name]
    ]
    return _HEAD + "\n".join(rows) + "\n" + _FAULTS + "\n".join(faults) + "\n" + _TAIL


def _sum(own: dict[str, object], whats: tuple[str, ...]) -> int:
    return sum(int(str(own.get(what, 0))) for what in whats)


def passed(paths: list[Path]) -> Counter[str]:
    """Cases of each test of JUnit files; of a case that is in several the last one counts.

    Raises:
        SystemExit: one failed.
    """
    cases = {str(case.get("name")): case for path in paths for case in ET.parse(path).getroot().iter("testcase")}
    failed = [
        name for name, case in cases.items() if case.find("failure") is not None or case.find("error") is not None
    ]
    if failed:
        raise SystemExit(f"{failed[0]} failed: there is nothing to show")
    return Counter(name.partition("[")[0] for name, case in cases.items() if case.find("skipped") is None)


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULT.read_text()), passed([Path(name) for name in sys.argv[1:]])))
