"""The examples of docs/contributing/extending.md, as modules: what the page teaches works."""

import re
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parents[1] / "docs" / "contributing" / "extending.md"


def example(heading: str) -> ModuleType:
    """The code below this heading, executed."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", section[1], re.DOTALL)
    module = ModuleType(f"example_of_{heading.rsplit(maxsplit=1)[-1]}")
    exec(compile(code, str(PAGE), "exec"), vars(module))
    return module
