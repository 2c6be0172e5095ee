"""Versions: per group, only upwards, never used twice; and creation versions."""

from __future__ import annotations

from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, present, require, same
from mediator.stores.conformance.samples import counter
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Status, Write

__all__ = ["THEME"]

THEME = Theme("versions")

_TICK_US = 1_000
"""A millisecond clock rounds down."""


async def _two_groups(scratch: Scratch) -> ScratchClass:
    return await scratch.subject(counter("a"), counter("b", group="side"))


@THEME.proves("contract")
async def versions_follow_the_clock(scratch: Scratch) -> None:
    """A first version is the store's clock in microseconds, and all groups have one."""
    subject = await _two_groups(scratch)
    before_us = await scratch.store.time_us()
    versions = applied(await subject.create("x", {"a": 1})).versions
    after_us = await scratch.store.time_us() + _TICK_US
    same(sorted(versions), ["main", "side"], "groups with a version")
    for group, version in versions.items():
        require(before_us <= version <= after_us, f"version of {group} is {version}: not its clock")


@THEME.proves("contract")
async def returned_versions_equal_read_versions(scratch: Scratch) -> None:
    """Every write returns the versions that a later read returns."""
    subject = await _two_groups(scratch)
    for label, write in (
        ("CREATE", subject.creation("x", {"a": 1})),
        ("UPDATE", subject.change("x", {"b": 1})),
        ("REPLACE", subject.replacement("x", {"b": 2})),
    ):
        versions = applied(await subject.write(write), label).versions
        same(await subject.versions("x"), dict(versions), f"versions after {label}")


@THEME.proves("contract")
async def only_written_groups_get_versions(scratch: Scratch) -> None:
    """An UPDATE increases the versions of only its groups; REPLACE increases all."""
    subject = await _two_groups(scratch)
    first = applied(await subject.create("x", {"a": 1, "b": 1})).versions
    second = applied(await subject.update("x", {"b": 2})).versions
    same(second["main"], first["main"], "version of the group that was not written")
    require(second["side"] > first["side"], "the written group has no later version")
    third = applied(await subject.replace("x", {"a": 2})).versions
    are_later = all(third[group] > second[group] for group in third)
    require(are_later, f"REPLACE must move every version: {dict(second)} became {dict(third)}")


@THEME.proves("contract")
async def groups_without_fields_have_versions(scratch: Scratch) -> None:
    """A group without fields has a version, increased by an UPDATE that names it."""
    subject = await scratch.subject(groups=("main",))
    first = applied(await subject.create("x")).versions
    same(sorted(first), ["main"], "groups of a record without fields")
    second = applied(await subject.update("x", groups=("main",)), "UPDATE of no field").versions
    require(second["main"] > first["main"], "naming a group did not move its version")


@THEME.proves("contract")
async def versions_rise_over_deletes(scratch: Scratch) -> None:
    """Deleting and recreating a record never repeats or lowers a version of any group."""
    subject = await _two_groups(scratch)
    last = {"main": 0, "side": 0}
    for round_ in range(5):
        for write in (
            subject.creation("x", {"a": round_}),
            subject.change("x", {"b": round_}),
            subject.deletion("x"),
        ):
            versions = applied(await subject.write(write), write.kind.name).versions
            are_later = all(versions[group] > last[group] for group in write.groups)
            require(are_later, f"{write.kind.name}: {last} became {dict(versions)}")
            last = dict(versions)


@THEME.proves("contract")
async def deletion_returns_its_tombstone(scratch: Scratch) -> None:
    """DELETE returns the tombstone's versions, and the highest as creation version."""
    subject = await _two_groups(scratch)
    before = applied(await subject.create("x", {"a": 1})).versions
    result = applied(await subject.delete("x"), "DELETE")
    same(sorted(result.versions), sorted(before), "groups of a tombstone")
    same(result.creation_version, max(result.versions.values()), "what DELETE returns")
    is_later = result.creation_version > max(before.values())
    require(is_later, "a tombstone must be later than its record")


async def _write(subject: ScratchClass, write: Write) -> int:
    """Apply a write; return the creation version, which must equal that of a read."""
    result = applied(await subject.write(write), write.kind.name)
    record = present(await subject.read(write.id), "the record")
    label = f"creation version after {write.kind.name}"
    same(record.creation_version, result.creation_version, label)
    return record.creation_version


@THEME.proves("contract")
async def creation_version_lasts_until_deletion(scratch: Scratch) -> None:
    """The creation version stays until deletion, and the next one is later."""
    subject = await _two_groups(scratch)
    first = applied(await subject.create("x", {"a": 1}))
    is_version = first.creation_version in first.versions.values()
    require(is_version, "the creation version must be a version of the creation")
    for write in (subject.change("x", {"a": 2}), subject.replacement("x", {"a": 3})):
        same(await _write(subject, write), first.creation_version, "the creation version")
    tombstone = applied(await subject.delete("x"), "DELETE").creation_version
    second = await _write(subject, subject.replacement("x", {"a": 4}))
    require(second > tombstone, "the second creation version must be later than the tombstone")


@THEME.proves("contract")
async def given_creation_versions_are_recorded(scratch: Scratch) -> None:
    """CREATE and REPLACE record the creation version of an anchor in another store."""
    subject = await _two_groups(scratch)
    for write in (
        subject.creation("created", {"a": 1}, creation_version=1_000),
        subject.replacement("replaced", {"a": 1}, creation_version=1_000),
        subject.replacement("replaced", {"a": 2}, creation_version=2_000),
    ):
        same(await _write(subject, write), write.creation_version, "the given creation version")


@THEME.proves("contract")
async def deletion_spares_later_creations(scratch: Scratch) -> None:
    """DELETE with a tombstone version keeps a record created later, and removes an earlier one."""
    subject = await _two_groups(scratch)
    await subject.create("x", {"a": 1}, creation_version=5_000)
    is_spared = (await subject.delete("x", creation_version=4_000)).status is not Status.APPLIED
    require(is_spared, "DELETE removed a record created after its tombstone")
    same(await subject.values("x"), {"a": 1}, "a record created later")
    applied(await subject.delete("x", creation_version=6_000), "DELETE of a record created before")
    same(await subject.read("x"), None, "after DELETE")
