"""What the doctor says: one diagnosis, with what it was seen by, what to do, and when it may not hold."""

from dataclasses import dataclass, field, replace

from traceanalyzer.meaning.severities import Severity
from traceanalyzer.model.schema import printable


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that the inputs tell.

    Attributes:
        rule: the name of the function that gives it; `diagnose` says it.
        severity: one of SEVERITIES; `info` is healthy, or harmless.
        diagnosis: what it means, in one or two sentences.
        signal: what in the input says so.
        recommendation: what to do; `None` when nothing is to be done.
        caveat: when it may not hold.
        ranks: the ranks that it is about, as the job counts them.
    """

    rule: str = field(default="", kw_only=True)
    severity: Severity
    diagnosis: str
    signal: str
    recommendation: str | None = None
    caveat: str | None = None
    ranks: tuple[int, ...] = field(default=())

    @property
    def legible(self) -> "Diagnosis":
        """The same in printable texts: logs and dumps hold what programs wrote into them."""
        return replace(
            self,
            diagnosis=printable(self.diagnosis),
            signal=printable(self.signal),
            recommendation=self.recommendation and printable(self.recommendation),
            caveat=self.caveat and printable(self.caveat),
        )
