"""What the doctor prints: diagnoses with what they rest on, and the topology as a matrix."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.doctor import Diagnosis, Examination, Topology
from traceanalyzer.doctor.topology import is_nvlink
from traceanalyzer.meaning.severities import GRAVE

_MARKS = {
    "high": "[bold red]high[/]",
    "medium": "[bold yellow]medium[/]",
    "low": "[bold]low[/]",
    "info": "[green]info[/]",
}

_MOST_DEVICES = 20


def show(examination: Examination, console: Console) -> None:
    """Print it all."""
    if examination.case.topology is not None:
        _matrix(examination.case.topology, console)
    if all(one.severity == "info" for one in examination.diagnoses):
        console.print(f"[bold]•[/] {examination.verdict[0]}", highlight=False)
    for one in examination.diagnoses:
        _diagnosis(one, console)
    for note in examination.notes[:12]:
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False)
    if len(examination.notes) > 12:
        console.print(f"[yellow]Note:[/] {len(examination.notes) - 12} more such; --json has them.", highlight=False)


def show_troubles(examination: Examination, console: Console) -> None:
    """Print what is wrong, without what is in order."""
    for one in examination.diagnoses:
        if one.severity in GRAVE:
            _diagnosis(one, console)


def _diagnosis(one: Diagnosis, console: Console) -> None:
    console.print(f"[bold]•[/] {_MARKS[one.severity]} {escape(one.diagnosis)}", highlight=False)
    if one.severity == "info":
        if one.caveat:
            console.print(f"  [dim]{escape(one.caveat)}[/]", highlight=False)
        return
    for name, text in (("Why", one.signal), ("Fix", one.recommendation), ("Note", one.caveat)):
        if text:
            console.print(f"  [dim]{name}:[/] {escape(text)}", highlight=False)


def _matrix(topology: Topology, console: Console) -> None:
    shown = topology.devices[:_MOST_DEVICES]
    table = Table(title="Paths between devices", box=box.SIMPLE_HEAD)
    table.add_column("")
    for device in shown:
        table.add_column(device, justify="center")
    table.add_column("NUMA")
    for device in shown:
        cells = [_cell(topology.path(device, other), is_self=device == other) for other in shown]
        table.add_row(escape(topology.name_of(device)), *cells, escape(topology.numa_node.get(device, "")))
    if len(shown) < len(topology.devices):
        table.caption = f"{len(shown)} of {len(topology.devices)} devices; --json and the page have all"
    console.print(table)


def _cell(path: str | None, *, is_self: bool) -> str:
    if is_self:
        return "[dim]·[/]"
    if path is None:
        return "?"
    return f"[bold #0072B2]{path}[/]" if is_nvlink(path) else f"[#D55E00]{path}[/]" if path == "SYS" else path
