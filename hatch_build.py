"""What building a wheel does beside packing files: it compiles the templates of pages, so that no run has to."""

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledTemplates(BuildHookInterface):
    """Adds `traceanalyzer/templates/compiled`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them; an editable installation reads its source tree's templates, which change."""
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory()
        root = Path(self.root)
        # Not imported: the package's own dependencies are not needed to build it.
        compiled = runpy.run_path(str(root / "traceanalyzer/report/compiled.py"))
        compiled["compile_all"](root / "templates", Path(self._made.name))
        build_data["force_include"][self._made.name] = "traceanalyzer/templates/compiled"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove what was made."""
        if version != "editable":
            self._made.cleanup()
