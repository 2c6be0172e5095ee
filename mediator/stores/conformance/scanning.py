"""Scans of a class in the order of ids, page by page, and counts."""

from __future__ import annotations

from mediator.schema.annotations import Capability
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import require, same
from mediator.stores.conformance.samples import HOSTILE_TEXTS, counter, text
from mediator.stores.conformance.scratch import Scratch, ScratchClass

__all__ = ["THEME"]

THEME = Theme("scanning")

_IDS = ("a", "A", "aa", "b", "é", "e\u0301", "\uffee", "\U00010000", "~", *HOSTILE_TEXTS)

_MAX_IDS = 1_000


async def _scan(subject: ScratchClass, size: int) -> list[str]:
    """Scan a class in pages until one is empty."""
    ids: list[str] = []
    while page := await subject.store.scan(subject.fragment, ids[-1] if ids else None, size):
        require(len(page) <= size, f"a page of {size} has {len(page)} records")
        ids += [record.id for record in page]
        require(len(ids) < _MAX_IDS, "a scan does not end")
    return ids


@THEME.proves(Capability.SCANS)
async def pages_give_every_id_once(scratch: Scratch) -> None:
    """Pages of any size give every record once, in the order of the UTF-8 bytes of its id."""
    subject = await scratch.subject(counter())
    await subject.write_all([subject.creation(id_, {"n": 1}) for id_ in _IDS])
    expected = sorted(_IDS, key=str.encode)
    for size in (1, 7, len(_IDS), 1_000):
        same(await _scan(subject, size), expected, f"ids in pages of {size}")
    same(await subject.store.count(subject.fragment), len(_IDS), "count")


@THEME.proves(Capability.SCANS)
async def a_scan_may_start_anywhere(scratch: Scratch) -> None:
    """A page can start beyond an absent id."""
    subject = await scratch.subject(counter())
    await subject.write_all([subject.creation(id_) for id_ in ("b", "d", "f")])
    for after, expected in (("a", "bdf"), ("b", "df"), ("c", "df"), ("f", ""), ("z", "")):
        page = await subject.store.scan(subject.fragment, after, 5)
        same([record.id for record in page], list(expected), f"scan beyond {after!r}")


@THEME.proves("contract")
async def scanned_records_are_whole_or_sparse(scratch: Scratch) -> None:
    """A scan returns the same records as reads, for all fields, some and none."""
    subject = await scratch.subject(counter(), text(group="side"))
    await subject.create("x", {"n": None, "s": "see"})
    await subject.create("y", {"n": 2})
    for fields in (None, ("n",), ("s",), ()):
        scanned_records = await subject.store.scan(subject.fragment, None, 5, fields)
        read_records = await subject.read_all(["x", "y"], fields)
        same(list(scanned_records), read_records, f"scan of fields {fields}")


@THEME.proves("contract")
async def an_empty_class_has_nothing(scratch: Scratch) -> None:
    """A class without records scans and counts as empty."""
    subject = await scratch.subject(counter())
    same(await _scan(subject, 5), [], "scan of an empty class")
    same(await subject.store.count(subject.fragment), 0, "count of an empty class")
