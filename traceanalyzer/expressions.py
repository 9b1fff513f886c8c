"""Regular expressions that users give: matched in a time that grows with the text only, whatever they ask for."""

from msgspec import Struct

from traceanalyzer.errors import UsageError


class Expression(Struct, frozen=True):
    """One expression, in the syntax of RE2: Python's without looking ahead or behind, and without references back.

    Attributes:
        pattern: its text.
    """

    pattern: str

    @classmethod
    def parse(cls, text: str, where: str) -> "Expression":
        """The expression that `where` (an option and its value) gives.

        Raises:
            UsageError: it is none.
        """
        made = cls(text)
        try:
            made.search("")
        except ValueError as error:
            why = str(error).partition(": ")[2] or str(error)
            raise UsageError(
                f"{where}: not a regular expression ({why}); look-around and references back are not known"
            ) from error
        return made

    @property
    def flags(self) -> int:
        """None: they are written in the text, as `(?i)`."""
        return 0

    def search(self, text: str) -> bool:
        """Whether it matches anywhere in a text."""
        import pyarrow as pa  # noqa: PLC0415 - only where an expression is given
        import pyarrow.compute as pc  # noqa: PLC0415 - the same

        return bool(pc.match_substring_regex(pa.array([text], pa.large_string()), self.pattern)[0].as_py())
