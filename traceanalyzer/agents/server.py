"""The questions as tools of an MCP server: read-only, below given roots, answers of bounded length."""

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, Signature
from typing import Any, get_type_hints

from traceanalyzer import __version__
from traceanalyzer.agents.questions import QUESTIONS
from traceanalyzer.agents.verbs import VERBS, Asked, Workspace, ask, could_not
from traceanalyzer.errors import TraceAnalyzerError, needs_extra

USAGE_ERROR = "usage_error"
"""Status when the question itself makes no sense: `why` says what to ask instead."""

INSTRUCTIONS = """Profiles of multi-GPU jobs (PyTorch profiler, Nsight Systems): where each rank's time went, and why.
Begin with `summary` and `findings` of a folder of traces. Times are integer nanoseconds in columns that end in _ns; a
value that is absent is unknown, not 0. status tells `nothing_found` (looked at, there is none) from `could_not_look`
(why says what the traces lack). Give `cursor` back to read on. Say the figures' window and unit when you cite them."""


def server(workspace: Workspace) -> Any:
    """An MCP server (`mcp.server.mcpserver.MCPServer`) over the workspace.

    Raises:
        UsageError: the package `mcp` is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra
        from mcp.types import ToolAnnotations  # noqa: PLC0415
    except ImportError as error:
        raise needs_extra("the MCP server needs the package mcp", "agents") from error
    made = MCPServer("traceanalyzer", version=__version__, instructions=INSTRUCTIONS)
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    for name in VERBS:
        # As text alone: with the same content beside it, indented, an answer would be twice as long.
        tool = made.tool(
            name=name.replace("-", "_"), description=QUESTIONS[name].what, annotations=hints, structured_output=False
        )
        tool(_tool(workspace, name))
    return made


def _tool(workspace: Workspace, verb: str) -> Callable[..., str]:
    """The question as a function of what a caller may give: the server reads its signature."""

    def tool(**given: Any) -> str:
        try:
            return ask(workspace, verb, **given).text()
        except TraceAnalyzerError as error:
            return could_not(str(error), USAGE_ERROR).text()

    question, kinds = QUESTIONS[verb], get_type_hints(Asked)
    defaults = {one.name: one.default for one in fields(Asked)} | dict.fromkeys(
        question.arguments.split(), Parameter.empty
    )
    names = (*question.arguments.split(), *question.selectors.split(), "cursor")
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kinds[name]) for name in names
    ]
    tool.__signature__ = Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    tool.__annotations__ = {name: kinds[name] for name in names} | {"return": str}
    tool.__name__ = verb.replace("-", "_")
    return tool
