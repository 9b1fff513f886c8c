"""Regular expressions from users, matched in time linear in the text (RE2)."""

from msgspec import Struct

from traceanalyzer.errors import UsageError


class Expression(Struct, frozen=True):
    """One expression in RE2 syntax: Python's without look-around and backreferences.

    Attributes:
        pattern: its text.
    """

    pattern: str

    @classmethod
    def parse(cls, text: str, where: str) -> "Expression":
        """Parse the expression; `where` names the option and its value.

        Raises:
            UsageError: it is not a regular expression.
        """
        made = cls(text)
        try:
            made.search("")
        except ValueError as error:
            why = str(error).partition(": ")[2] or str(error)
            raise UsageError(
                f"{where}: not a regular expression ({why}); look-around and backreferences are not supported"
            ) from error
        return made

    @property
    def flags(self) -> int:
        """None; flags are written in the pattern, as `(?i)`."""
        return 0

    def search(self, text: str) -> bool:
        """Whether it matches anywhere in the text."""
        import pyarrow as pa  # noqa: PLC0415 - only where an expression is given
        import pyarrow.compute as pc  # noqa: PLC0415 - the same

        return bool(pc.match_substring_regex(pa.array([text], pa.large_string()), self.pattern)[0].as_py())
