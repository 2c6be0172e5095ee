"""The findings of a trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Contradiction", "Evaluation", "Promise", "StaleRead", "TraceReport"]

Promise: TypeAlias = Literal["vis", "ack"]
"""What a read may lag behind by at most delta: anything that was acknowledged or read before
(``vis``), or acknowledged writes only (``ack``)."""

_MAX_KEY_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class StaleRead:
    """A read, and the write that it missed.

    Attributes:
        line: Line of the read.
        late_us: How long it began after a newer version had been seen, in microseconds.
        seen_line: The operation that first showed a newer version: an acknowledged write, or
            another read.
        missed_line: The write that was missed; None if it is not in the trace.
    """

    line: int
    key: str
    late_us: int
    seen_line: int
    missed_line: int | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How stale reads were.

    Attributes:
        delta_us: The least delta for which the trace is delta-atomic.
        stale: Reads that were stale at all.
        beyond: Reads that were staler than the bound; meaningless without one.
        worst: Some of the stalest reads, the worst first.
    """

    delta_us: int
    stale: int
    beyond: int
    worst: tuple[StaleRead, ...]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An operation for which no delta is large enough."""

    line: int
    key: str
    detail: str


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The findings of a trace; writes include those of unknown outcome.

    Attributes:
        promise: The evaluation that decides whether the trace holds.
        vis: Against anything that was acknowledged or read before.
        ack: Against acknowledged writes only.
        contradictions: Their number; `examples` are some of them.
    """

    name: str
    reads: int
    writes: int
    keys: int
    promise: Promise
    bound_us: int | None
    vis: Evaluation
    ack: Evaluation
    contradictions: int
    examples: tuple[Contradiction, ...]

    @property
    def holds(self) -> bool:
        """Whether there are no contradictions and, if there is a bound, no read is beyond it."""
        bounded = self.bound_us is None or self.deciding.delta_us <= self.bound_us
        return bounded and not self.contradictions

    @property
    def deciding(self) -> Evaluation:
        return self.vis if self.promise == "vis" else self.ack

    def as_document(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}

    def as_text(self) -> str:
        lines = [
            f"{self.name}: {self.reads} reads and {self.writes} writes of {self.keys} keys",
            _line("VIS", self.vis, self.bound_us),
            _line("ACK", self.ack, self.bound_us),
        ]
        lines += [_stale_read_text(self.name, read) for read in self.deciding.worst]
        if self.contradictions:
            lines.append(f"{self.contradictions} operations contradict the others:")
        lines += [
            f"{self.name}:{example.line}: {_plain(example.key)}: {example.detail}"
            for example in self.examples
        ]
        lines.append("holds" if self.holds else "does not hold")
        return "\n".join(lines)


def _line(kind: str, evaluation: Evaluation, bound_us: int | None) -> str:
    beyond = "" if bound_us is None else f", {evaluation.beyond} beyond {bound_us / 1e6:g} s"
    return (
        f"{kind}: the least delta is {evaluation.delta_us / 1e6:.6f} s;"
        f" {evaluation.stale} stale reads{beyond}"
    )


def _stale_read_text(name: str, read: StaleRead) -> str:
    missed = f"the write of line {read.missed_line}" if read.missed_line else "a newer version"
    return (
        f"{name}:{read.line}: {_plain(read.key)}: stale by {read.late_us / 1e6:.6f} s:"
        f" missed {missed}, known since line {read.seen_line}"
    )


def _plain(key: str) -> str:
    """Return a key for printing, without control sequences for the terminal."""
    text = key if len(key) <= _MAX_KEY_CHARACTERS else f"{key[:_MAX_KEY_CHARACTERS]}…"
    return text if text.isprintable() else repr(text)
