"""Histories of objects as clients observe them, and the checks of their consistency.

A field holds a number of two digits to the base `BASE`: the *epoch*, the number of the put that
wrote all fields, and the *count* of increments since. All fields but `extra` are incremented
together, so torn, lost and repeated writes show:

- a read is no older than any response that a client got before the read was sent;
- each acknowledged write has unique versions, above all that were known before it was sent;
- a version of a group has one value; in version order no epoch returns, and within an epoch the
  count only grows, which an undone write would violate;
- no version lies between a write and the version in its If-Match;
- no object is absent without a delete, nor present if its put was refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise

from benchmarks.harness.soak_load import Broken

__all__ = ["BASE", "GROUPS", "Attempt", "History", "Versions"]

BASE = 1_000_000

Versions = Mapping[str, int]
"""The version of each cache group."""

GROUPS = {"n": "main", "left": "left", "middle": "middle", "right": "main", "extra": "extra"}
"""The group of each field; no two fields of an object share a group."""
EXTRA_FIELD = "extra"
EVENTS = 40
"""The number of last events shown when an object breaks a rule."""


@dataclass(frozen=True)
class Attempt:
    """A request about to be sent, with the known state of the object.

    Attributes:
        step: The step of the history.
        latest_versions: The latest known version of each group.
        deleted: Whether a deletion has these versions.
    """

    step: int
    latest_versions: Versions
    deleted: bool


@dataclass
class _Deletion:
    started_at: int
    ended_at: int | None = None


@dataclass
class History:
    """The history of one object.

    Attributes:
        name: Its class and id.
        is_permanent: Whether it is put once and never deleted.
        additions: Increments of the joint fields that may have taken effect.
        incomplete: Acknowledged writes without versions, as another process applied them.
    """

    name: str
    is_permanent: bool
    additions: int = 0
    incomplete: int = 0
    _latest_versions: dict[str, int] = field(default_factory=dict)
    _deleted: bool = True
    _values: dict[str, dict[int, float]] = field(default_factory=dict)
    _write_versions: dict[str, set[int]] = field(default_factory=dict)
    _conditional_writes: list[tuple[str, int, int]] = field(default_factory=list)
    _puts: dict[int, int] = field(default_factory=dict)
    _deletions: dict[int, _Deletion] = field(default_factory=dict)
    _clock: count[int] = field(default_factory=count)
    _events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS))

    @property
    def class_name(self) -> str:
        """The class of the object."""
        return self.name.partition("/")[0]

    def attempt(self) -> Attempt:
        """Return the attempt of a request about to be sent."""
        return Attempt(next(self._clock), dict(self._latest_versions), self._deleted)

    def put(self, epoch: int) -> Attempt:
        """Record that a put is about to be sent."""
        attempt = self.attempt()
        self._puts[epoch] = attempt.step
        return attempt

    def record_refused_put(self, epoch: int) -> None:
        """Record that a put was refused: its value must never appear."""
        del self._puts[epoch]

    def delete(self) -> Attempt:
        """Record that a deletion is about to be sent."""
        attempt = self.attempt()
        self._deletions[attempt.step] = _Deletion(attempt.step)
        return attempt

    def record_refused_deletion(self, attempt: Attempt) -> None:
        """Record that a deletion was refused or found no object."""
        del self._deletions[attempt.step]

    def record_deletion(self, attempt: Attempt, versions: Versions) -> None:
        """Record an acknowledged deletion."""
        self._log("deleted", attempt, versions)
        self._deletions[attempt.step].ended_at = next(self._clock)
        self._check_write_versions(attempt, versions, versions)
        if versions and all(
            v >= self._latest_versions.get(group, 0) for group, v in versions.items()
        ):
            self._latest_versions.update(versions)
            self._deleted = True

    def record_write(
        self,
        attempt: Attempt,
        versions: Versions,
        values: Mapping[str, float],
        base_versions: Versions | None = None,
    ) -> None:
        """Record an acknowledged write with its response and the versions in its If-Match."""
        self._log("wrote", attempt, versions, values, base_versions)
        groups = [GROUPS[name] for name in values]
        self._check_write_versions(attempt, versions, groups)
        if base_versions is not None:
            self._conditional_writes += (
                (group, base_versions[group], versions[group]) for group in groups
            )
        self.record_read(attempt, versions, values)

    def record_read(
        self,
        attempt: Attempt,
        versions: Versions,
        values: Mapping[str, float],
        *,
        partial: bool = False,
    ) -> None:
        """Record the response to a read; `partial` if reported as partial."""
        self._log("saw", attempt, versions, values, partial)
        for group, version in versions.items():
            latest = attempt.latest_versions.get(group, 0)
            is_outdated = version <= latest if attempt.deleted else version < latest
            self._require(not is_outdated, f"{group} is at {version} after {latest} was known")
        for name, value in values.items():
            group = GROUPS[name]
            if group in versions:
                recorded = self._values.setdefault(group, {}).setdefault(versions[group], value)
                self._require(recorded == value, f"a version of {group} has two values")
            self._require(value // BASE in self._puts, f"nobody put {name}={value}")
        if not partial:
            self._check_whole(values)
        self._advance(versions)

    def record_absence(self, attempt: Attempt) -> None:
        """Record a response that the object is absent."""
        self._log("absent", attempt)
        if attempt.deleted:
            return
        value = self._values["main"].get(attempt.latest_versions["main"])
        if value is None:  # only the version is known: the response to its writer was lost
            return
        epoch = int(value // BASE)
        self._require(
            any(
                deletion.ended_at is None or deletion.ended_at > self._puts[epoch]
                for deletion in self._deletions.values()
            ),
            f"absent, although put as {epoch} and not deleted since",
        )

    def check(self) -> None:
        """Check the finished history.

        Raises:
            Broken: The history breaks a rule.
        """
        for group, values in self._values.items():
            self._check_order(group, [values[version] for version in sorted(values)])
        for group, base, version in self._conditional_writes:
            between = [v for v in self._values[group] if base < v < version]
            self._require(
                not between, f"If-Match {group}:{base} was met at {version} over {between}"
            )
        counts: dict[float, float] = {}
        for value in (
            v for g, values in self._values.items() if g != EXTRA_FIELD for v in values.values()
        ):
            counts[value // BASE] = max(counts.get(value // BASE, 0), value % BASE)
        total = sum(counts.values())
        self._require(total <= self.additions, f"{total} increments by {self.additions} requests")

    def _check_order(self, group: str, values: list[float]) -> None:
        epochs = [value // BASE for value in values]
        changes = [previous for previous, next_ in pairwise([-1.0, *epochs]) if previous != next_]
        self._require(len(changes) == len(set(epochs)), f"an epoch of {group} returned: {values}")
        for previous, next_ in pairwise(values):
            grows = previous // BASE != next_ // BASE or previous < next_
            self._require(grows, f"{group} goes from {previous} to {next_}")

    def _check_whole(self, values: Mapping[str, float]) -> None:
        joint_values = {value for name, value in values.items() if name != EXTRA_FIELD}
        self._require(len(joint_values) <= 1, f"it is torn: {values}")
        self._require(
            len({value // BASE for value in values.values()}) <= 1, f"it is torn: {values}"
        )

    def _check_write_versions(
        self, attempt: Attempt, versions: Versions, groups: Iterable[str]
    ) -> None:
        for group in groups:
            version = versions[group]
            write_versions = self._write_versions.setdefault(group, set())
            self._require(
                version not in write_versions, f"two writes of {group} have version {version}"
            )
            self._require(
                version > attempt.latest_versions.get(group, 0),
                f"{group} was written below a known version",
            )
            write_versions.add(version)

    def _advance(self, versions: Versions) -> None:
        for group, version in versions.items():
            if version > self._latest_versions.get(group, 0):
                self._latest_versions[group] = version
                self._deleted = False

    def _require(self, condition: bool, reason: str) -> None:
        if not condition:
            raise Broken("\n".join((f"{self.name}: {reason}", *self._events)))

    def _log(self, event: str, attempt: Attempt, *details: object) -> None:
        self._events.append(f"{attempt.step}-{next(self._clock)} {event} {details}")
