"""The page on reliability, from what campaigns and tests last gave.

python -m tests.fuzz --result tests/fuzz/result.json     # campaigns; hours
pytest tests/readers/test_kineto_salvage.py tests/cli/test_faults.py tests/cli/test_hostile.py \\
    tests/analyses/time/test_against_counting.py tests/analyses/*/test_*_counted.py \\
    tests/analyses/test_what_changes_no_table.py tests/fuzz/test_quick.py tests/doctor/test_links.py tests/snapshots/test_job.py \\
    tests/cli/test_odd_inputs.py tests/readers/test_bad_sector.py tests/cli/test_debug.py tests/files/test_whole.py \\
    tests/doctor/test_flight_recorder.py tests/doctor/test_nccl_reading.py tests/doctor/test_xpu_timer.py tests/gate/test_not_fooled.py \\
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
    "test_a_text_cut_anywhere_gives_every_whole_event": ("Kineto JSON cut at any byte", "partial and said; refused where no event is whole"),
    "test_a_gzip_cut_anywhere_gives_every_whole_event_that_it_holds": ("gzip cut at any byte", "partial and said; refused where no event is whole"),
    "test_other_encodings": ("UTF-16, byte order marks", "right"),
    "test_texts_as_they_are_found": ("NUL padding, commas, brackets, NaN, doubled keys, odd numbers, missing ids, joined files", "right; else partial and said"),
    "test_a_text_without_end_does_not_fill_the_memory": ("an event without end", "partial and said"),
    "test_a_full_disk_is_said_and_the_older_report_stays": ("full disk", "refused; the older report stays"),
    "test_a_full_disk_is_said_of_single_files_too": ("the same under an export, a cut, a script, a baseline", "refused; nothing is left"),
    "test_an_answer_that_cannot_be_printed_is_no_success": ("the same behind `tables > file`", "refused"),
    "test_no_permission_is_said": ("no permission for output, for one rank's file or folder, for all", "refused; partial and said"),
    "test_a_signal_leaves_nothing_half_written": ("Ctrl-C, SIGTERM", "ended; nothing half-written, no process left"),
    "test_a_signal_inside_what_swallows_errors_is_not_lost": ("the same inside a destructor", "ended"),
    "test_a_killed_worker_costs_no_other_file": ("killed worker", "partial and said"),
    "test_a_reader_that_fails_costs_its_file_only": ("a reader that raises", "partial and said"),
    "test_too_little_memory_is_no_bug": ("too little memory", "refused"),
    "test_no_room_for_a_thread_is_no_bug": ("no memory for a thread", "refused"),
    "test_two_runs_into_one_folder_leave_one_whole_report": ("two runs into one folder", "right: one of them, whole"),
    "test_two_writers_at_once_leave_one_whole_file": ("two writers of one file", "right: one of them, whole"),
    "test_a_file_that_no_report_wrote_is_not_replaced": ("a file of another's in the way", "refused; `--force` replaces it"),
    "test_a_link_out_of_the_folder_is_not_written_through": ("a link out of the output folder", "refused"),
    "test_links_out_of_a_folder_of_traces_are_followed_on_request_only": ("a link out of a folder of traces", "skipped and said"),
    "test_links_to_snapshots_outside_are_followed_on_request_only": ("the same to a memory snapshot", "skipped and said"),
    "test_links_to_logs": ("links to logs outside a folder of the doctor's", "refused, or skipped and said; `--follow-links` reads them"),
    "test_links_to_dumps": ("the same to dumps", "skipped and said"),
    "test_a_file_that_cannot_be_read_keeps_none_of_the_others_from_the_report": ("a cut memory snapshot among others", "partial and said; a gate does not pass"),
    "test_exports_replace_their_own_files_only": ("a file of another's where an export goes", "refused; `--force` replaces it"),
    "test_files_that_change_while_they_are_read_are_said": ("a file that changes while it is read", "said"),
    "test_odd_surroundings": ("no home, terminals of one column", "right"),
    "test_nobody_listens": ("full, closed or broken standard output", "right"),
    "test_all_formats_are_there": ("hostile names, through HTML, CSV, JSON, JUnit, Markdown, terminal and Perfetto", "right"),
    "test_no_control_or_turning_character_anywhere": ("control and direction characters in them", "right: a mark instead"),
    "test_names_are_text_in_the_page": ("markup in them, page and policy", "right: text"),
    "test_no_cell_is_a_formula": ("formulae in CSV", "right: text"),
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
    "test_transfer_and_wait_are_those_of_the_definition": ("transfer and wait of eight random jobs whose instances are known", "right, or ambiguous and said"),
    "test_what_changes_no_table": ("these tables of three pairs of random ranks, moved in time, permuted, of other numbers", "right"),
    "test_a_read_error_in_the_middle_of_a_trace_is_said": ("a disk that fails in the middle: Kineto plain and gzip; SQLite and Parquet of Nsight", "partial and said; refused"),
    "test_what_is_odd_is_said": ("run.json of other ranks, impossible memory, bandwidths, sizes, ids and times, archives and names that lead out, pipes, circles of links", "right, or partial and said"),
    "test_a_view_without_end_ends": ("a database with a view without end in place of its kernels", "partial and said"),
    "test_a_snapshot_that_holds_itself_is_refused": ("a memory snapshot that holds itself", "refused"),
    "test_no_small_file_takes_long_by_the_clock": ("six damaged files of each reader, by the clock", "none over 10 s"),
}  # fmt: skip
"""Test → the kind of fault, and what it checks that becomes of it."""

_HEAD = """# What damaged and hostile inputs do

Made by `python -m tests.fuzz.page`; its first lines say how. *Right*: what is in the file is read. *Partial and said*: what
is left out is counted in the report. *Refused*: one sentence that names the file and what to do, and exit code 2. A traceback,
a run of over 10 s on a small file, and a figure that is wrong without a word are bugs: none was found in these cases.

## Damaged inputs

Small whole inputs, of which bytes are flipped, lost, doubled and cut, and values inside are replaced, removed, repeated and
moved. Kineto files are also held against a slow reader made of the standard library's JSON and fractions; of all analyses no
time may be negative unless the integrity checks doubt it; figures of other inputs are not held against anything. Whoever has
any note counts as said: Nsight exports nearly always have one. `python -m tests.fuzz` tries ten thousand of each, or as many as
fit into `--seconds`; these are the counts of the last run without a bug of each. A few of each, and those that ended in a bug once, are tests.

| input | cases | right | partial and said | refused | bugs |
|---|---:|---:|---:|---:|---:|
"""

_FAULTS = """
## Faults, and files as they are found

| kind of fault | cases tried | outcome |
|---|---:|---|
"""

_TAIL = """
## Installations

On 2026-11-22, on Linux: the lowest versions of the direct dependencies that `pyproject.toml` allows, with Python 3.12, and the highest
that could be installed, with Python 3.13, write the same `summary.json` of the samples `pytorch_ddp` and `pp_1f1b`; a package folder
that is mounted read-only works. The packages that these bring were not audited: `pip-audit` could reach no database of advisories:
it asks PyPI or OSV over the network. Run it where these can be reached (`pip-audit --skip-editable`), before each release.

## Not covered

- How long a case takes by the clock was measured of few, beside other work on two cores: 670 Kineto (842 ms), 73 Nsight databases (1,552 ms), 126 rocprofv3 (503 ms), 408 snapshots (838 ms),
  the slowest of each in brackets.
- Cases of all analyses take a second each: on 2026-11-22, on 32 cores, 7,507 Kineto cases (seeds from 0) found 271 times a rule that
  failed on stages of which nothing is counted, 3 times an error in the thinning of the timeline, and 2 times negative bytes without a word;
  5,577 of the other captures found 31 times the same error of the thinning. All are mended and the first seed of each ended well then; they
  were not run again. Later 616 Kineto cases found a share of no time (a division by zero) and 379 others nothing; that is mended, too, its
  seed is a test. The rows above are of such later seeds alone; the last 1,220 and 783 of them ran on the last code of that day.
- run.json, topologies, grammars, pickles, logs and snapshots in pieces were run anew on the code of 2026-11-22. Of the other rows most cases
  are older and 500 to 3,000 of that day. Among the logs one that speaks of 299,999,999,999 ranks took over two minutes: mended, and a test.
- "A worker ended" in 8 of 5,008 snapshots in pieces was one process: each part of the campaign that still ran was counted. Now such an
  end names its case. 21,351 cases, 10,000 of them on 16 processes, had none: which case it was, and why it ended, is not known.
- Ten thousand cases of all analyses: see above; of each reader by itself there were as many.
- By hand, on Linux: each command with a full or closed disk, without home, in a terminal of one column, as a user without rights on input and output, with `| head`, with
  0.5 to 1.5 GB of memory; Ctrl-C or SIGTERM at 24 random moments of eight commands (one was lost in a destructor: mended); 100,000 other files beside a job (38 s by the clock
  of a busy machine, 9 s of the processor); strace saw no socket of the network opened.
- The campaigns' mutations are drawn at random, by kind. Guided by coverage (`python -m tests.fuzz.guided`, atheris) only three
  targets were run, for a minute each and without a bug: topologies 50,153 cases, the unpickler 61,693, NCCL logs 6,522.
- How the time of one long capture is measured against a wrong clock of its profiler: nothing in a file tells.
- Windows and macOS: signals, locks and limits of memory were tried on Linux.
"""


def page(result: dict[str, dict[str, object]], tests: Counter[str]) -> str:
    """The page's text."""
    rows = [
        f"| {own['what']} | {_sum(own, (*FINE, *BUGS)):,} | " + " | ".join(f"{_sum(own, (what,)):,}" for what in FINE) + f" | {_sum(own, BUGS)} |"
        for own in result.values()
    ]  # fmt: skip
    faults = [f"| {kind} | {tests[name]:,} | {outcome} |" for name, (kind, outcome) in KINDS.items() if tests[name]]
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
