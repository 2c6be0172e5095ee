"""What clients saw of objects, and what cannot have been.

A field of an object holds a number of two digits to the base `BASE`: the *epoch*, which is the
number of the put that wrote all fields, and the *count* of what was added since. All fields but
`extra` are added to together, so what is torn shows, and so does what was lost or done twice:

- a read is not older than what any client was answered or shown before it was sent;
- each acknowledged write has versions of its own, above all that were known before it was sent;
- one version of a group has one value, and in the order of the versions no epoch comes back, and
  within an epoch the count only grows: whatever undoes a write that was seen breaks that;
- between a write and the version that its If-Match named there is no other;
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
"""Version of each cache group."""

GROUPS = {"n": "main", "left": "left", "middle": "middle", "right": "main", "extra": "extra"}
"""The group of each field; no two of one object share theirs."""
ALONE = "extra"
EVENTS = 40
"""The last that are shown of an object that is not as it must be."""


@dataclass(frozen=True)
class Attempt:
    """A request about to be sent: what was known of the object then.

    Attributes:
        at: The moment, in steps of the history.
        newest: The newest version of each group.
        deleted: Whether these are those of a deletion.
    """

    at: int
    newest: Versions
    deleted: bool


@dataclass
class _Deletion:
    started: int
    ended: int | None = None


@dataclass
class History:
    """Of one object.

    Attributes:
        name: Its class and id.
        is_kept: Whether it is put once, and never deleted.
        added: Additions that may have taken effect, to the fields that are added to together.
        incomplete: Acknowledged writes whose answer lacks versions: another process applied them.
    """

    name: str
    is_kept: bool
    added: int = 0
    incomplete: int = 0
    _newest: dict[str, int] = field(default_factory=dict)
    _deleted: bool = True
    _values: dict[str, dict[int, float]] = field(default_factory=dict)
    _written: dict[str, set[int]] = field(default_factory=dict)
    _followed: list[tuple[str, int, int]] = field(default_factory=list)
    _puts: dict[int, int] = field(default_factory=dict)
    _deletions: dict[int, _Deletion] = field(default_factory=dict)
    _clock: count[int] = field(default_factory=count)
    _events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS))

    @property
    def class_name(self) -> str:
        """Its class."""
        return self.name.partition("/")[0]

    def attempt(self) -> Attempt:
        """Note that a request is about to be sent."""
        return Attempt(next(self._clock), dict(self._newest), self._deleted)

    def put(self, epoch: int) -> Attempt:
        """Note that a put is about to be sent."""
        attempt = self.attempt()
        self._puts[epoch] = attempt.at
        return attempt

    def put_refused(self, epoch: int) -> None:
        """Note that it was refused, so that it must never be seen."""
        del self._puts[epoch]

    def delete(self) -> Attempt:
        """Note that a deletion is about to be sent."""
        attempt = self.attempt()
        self._deletions[attempt.at] = _Deletion(attempt.at)
        return attempt

    def delete_refused(self, attempt: Attempt) -> None:
        """Note that it was refused, or met nothing."""
        del self._deletions[attempt.at]

    def deleted(self, attempt: Attempt, versions: Versions) -> None:
        """Note that it was acknowledged."""
        self._note("deleted", attempt, versions)
        self._deletions[attempt.at].ended = next(self._clock)
        self._own(attempt, versions, versions)
        if versions and all(v >= self._newest.get(group, 0) for group, v in versions.items()):
            self._newest.update(versions)
            self._deleted = True

    def wrote(
        self,
        attempt: Attempt,
        versions: Versions,
        values: Mapping[str, float],
        onto: Versions | None = None,
    ) -> None:
        """Note an acknowledged write with what it was answered, and what its If-Match named."""
        self._note("wrote", attempt, versions, values, onto)
        groups = [GROUPS[name] for name in values]
        self._own(attempt, versions, groups)
        if onto is not None:
            self._followed += ((group, onto[group], versions[group]) for group in groups)
        self.record_read(attempt, versions, values)

    def record_read(
        self,
        attempt: Attempt,
        versions: Versions,
        values: Mapping[str, float],
        *,
        partial: bool = False,
    ) -> None:
        """Record the answer to a read; `partial` if it was reported as partial."""
        self._note("saw", attempt, versions, values, partial)
        for group, version in versions.items():
            known = attempt.newest.get(group, 0)
            late = version <= known if attempt.deleted else version < known
            self._hold(not late, f"{group} is at {version} after {known} was known")
        for name, value in values.items():
            group = GROUPS[name]
            if group in versions:
                known_value = self._values.setdefault(group, {}).setdefault(versions[group], value)
                self._hold(known_value == value, f"a version of {group} has two values")
            self._hold(value // BASE in self._puts, f"nobody put {name}={value}")
        if not partial:
            self._check_whole(values)
        self._raise(versions)

    def absent(self, attempt: Attempt) -> None:
        """Note that it was answered not to be there."""
        self._note("absent", attempt)
        if attempt.deleted:
            return
        value = self._values["main"].get(attempt.newest["main"])
        if value is None:  # only the version is known: its writer was not answered
            return
        epoch = int(value // BASE)
        self._hold(
            any(
                each.ended is None or each.ended > self._puts[epoch]
                for each in self._deletions.values()
            ),
            f"it is not there, though it was put as {epoch} and nobody has deleted it since",
        )

    def check(self) -> None:
        """Look at all of it, once it is over.

        Raises:
            Broken: It cannot have been.
        """
        for group, values in self._values.items():
            self._check_order(group, [values[version] for version in sorted(values)])
        for group, base, version in self._followed:
            between = [each for each in self._values[group] if base < each < version]
            self._hold(not between, f"If-Match {group}:{base} was met at {version} over {between}")
        counted: dict[float, float] = {}
        for value in (
            v for g, values in self._values.items() if g != ALONE for v in values.values()
        ):
            counted[value // BASE] = max(counted.get(value // BASE, 0), value % BASE)
        total = sum(counted.values())
        self._hold(total <= self.added, f"{total} was added, by {self.added} requests")

    def _check_order(self, group: str, values: list[float]) -> None:
        epochs = [value // BASE for value in values]
        changes = [one for one, other in pairwise([-1.0, *epochs]) if one != other]
        self._hold(len(changes) == len(set(epochs)), f"an epoch of {group} came back: {values}")
        for one, other in pairwise(values):
            grows = one // BASE != other // BASE or one < other
            self._hold(grows, f"{group} goes from {one} to {other}")

    def _check_whole(self, values: Mapping[str, float]) -> None:
        together = {value for name, value in values.items() if name != ALONE}
        self._hold(len(together) <= 1, f"it is torn: {values}")
        self._hold(len({value // BASE for value in values.values()}) <= 1, f"it is torn: {values}")

    def _own(self, attempt: Attempt, versions: Versions, groups: Iterable[str]) -> None:
        for group in groups:
            version = versions[group]
            written = self._written.setdefault(group, set())
            self._hold(version not in written, f"two writes of {group} have version {version}")
            self._hold(
                version > attempt.newest.get(group, 0), f"{group} was written below what was"
            )
            written.add(version)

    def _raise(self, versions: Versions) -> None:
        for group, version in versions.items():
            if version > self._newest.get(group, 0):
                self._newest[group] = version
                self._deleted = False

    def _hold(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Broken("\n".join((f"{self.name}: {otherwise}", *self._events)))

    def _note(self, what: str, attempt: Attempt, *details: object) -> None:
        self._events.append(f"{attempt.at}-{next(self._clock)} {what} {details}")
