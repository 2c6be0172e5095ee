"""Values copied between fields, on every store: once, despite concurrent writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pytest

from mediator.base.errors import Conflict, Invalid, MediatorError, NotFound, Unavailable
from mediator.control import copying
from mediator.control.copy_report import CopyReport, CopyRules, Fallback, Kind
from mediator.control.copy_sources import sources_of
from mediator.control.port import ChangeOptions
from mediator.data_plane import port
from mediator.data_plane.port import pages
from mediator.model.filters import Compare, Comparison
from mediator.model.operations import Create, Delete, Operation, Outcome, Update
from mediator.model.query import Query
from mediator.routing.freshness import STRONG
from mediator.schema.copies import parse_copy
from mediator.schema.types import Value, Values
from tests.process.service import Service, field_on, unique

SYSTEMS: Final = ("redis", "postgres", "mongo", "all")
BY_REFERENCE: Final = "missions.player.account:account"
BY_ID: Final = "missions.player=players.id.account:account"
BY_NAME: Final = "missions.player_name=players.name.account:account"
PLAIN: Final = CopyRules()
KEEP: Final = CopyRules(orphans=Fallback.KEEP, duplicates=Fallback.KEEP, conflicts=Fallback.KEEP)


def game_on(system: str) -> dict[str, Any]:
    """Return Cleager's game: players, and the missions that they are on."""
    main, second = ("postgres", "mongo") if system == "all" else (system, system)
    players = {
        "name": field_on(main, index=True),
        "account": field_on(main),
        "score": field_on(main, "integer"),
        "points": field_on(second, "decimal", maximum="100", group="points"),
    }
    missions = {
        "player": field_on(main, "reference", to="players"),
        "player_name": field_on(main),
        "account": field_on(second, index=True, group="account"),
        "rank": field_on(main, "integer"),
    }
    return {"players": {"fields": players}, "missions": {"fields": missions}}


@pytest.fixture(params=SYSTEMS)
async def game(mediator: Service, request: pytest.FixtureRequest) -> str:
    return await mediator.put_schema(game_on(request.param))


async def populate(mediator: Service, game: str) -> None:
    """Frodo and Sam each have a mission to copy to; a third mission has an account already."""
    await mediator.create(game, "players", "1", name="frodo", account="free", score=7)
    await mediator.create(game, "players", "2", name="sam", account="gold", score=101)
    await mediator.create(game, "missions", "a", player="1", player_name="frodo")
    await mediator.create(game, "missions", "b", player="2", player_name="sam")
    await mediator.create(game, "missions", "c", player="2", player_name="sam", account="own")
    await mediator.create(game, "missions", "d")


async def run_copy(
    mediator: Service, game: str, text: str, rules: CopyRules = PLAIN, **options: Any
) -> CopyReport:
    return await mediator.mediator.copying.run(
        game, parse_copy(text), rules, **{"for_s": 60.0, **options}
    )


def counts(report: CopyReport) -> dict[str, int]:
    """Return the counts that are not zero."""
    counts_by_name = {kind.value: count for kind, count in report.counts.items()}
    return {
        name: count for name, count in (counts_by_name | {"failed": report.failed}).items() if count
    }


async def field_values(
    mediator: Service, game: str, class_name: str, field: str
) -> dict[str, Value]:
    query = Query(game, class_name, fields=(field,))
    items = (await mediator.mediator.data.query(query, STRONG)).items
    return {item.outcome.id: (item.outcome.values or {}).get(field) for item in items}


@pytest.mark.parametrize("text", [BY_REFERENCE, BY_NAME, BY_ID])
async def test_missions_get_the_accounts_of_their_players(
    mediator: Service, game: str, text: str
) -> None:
    await populate(mediator, game)
    gold = Query(game, "missions", Compare(Comparison.EQ, ("account",), "gold"))
    assert not (await mediator.mediator.data.query(gold, STRONG)).items
    dry = await run_copy(mediator, game, text, dry_run=True)
    assert counts(dry) == {"changed": 2, "kept": 1, "empty": 1}
    assert not (await mediator.mediator.data.query(gold, STRONG)).items
    before = await mediator.get(game, "players", "2")
    report = await run_copy(mediator, game, text)
    assert counts(report) == counts(dry)
    assert report.next is None
    expected = {"a": "free", "b": "gold", "c": "own", "d": None}
    assert await field_values(mediator, game, "missions", "account") == expected
    # The index has it; the players are unchanged.
    [item] = (await mediator.mediator.data.query(gold, STRONG)).items
    assert item.outcome.id == "b"
    assert await mediator.get(game, "players", "2") == before


async def test_a_copy_changes_nothing_the_second_time(mediator: Service, game: str) -> None:
    await populate(mediator, game)
    await run_copy(mediator, game, BY_REFERENCE)
    before = [await mediator.get(game, "missions", id_) for id_ in "abcd"]
    second = await run_copy(mediator, game, BY_REFERENCE)
    assert counts(second) == {"equal": 2, "kept": 1, "empty": 1}
    assert [await mediator.get(game, "missions", id_) for id_ in "abcd"] == before


async def test_existing_values_are_overwritten_by_rule_only(mediator: Service, game: str) -> None:
    await populate(mediator, game)
    await mediator.create(game, "missions", "e", player="1", account=None)
    assert counts(await run_copy(mediator, game, BY_REFERENCE)) == {
        "changed": 2,
        "kept": 2,
        "empty": 1,
    }
    overwrite = CopyRules(overwrite=True)
    dry = await run_copy(mediator, game, BY_REFERENCE, overwrite, dry_run=True)
    assert counts(dry) == {"changed": 2, "equal": 2, "empty": 1}
    await run_copy(mediator, game, BY_REFERENCE, overwrite)
    expected = {"a": "free", "b": "gold", "c": "gold", "d": None, "e": "free"}
    assert await field_values(mediator, game, "missions", "account") == expected


async def test_a_field_of_another_type_gets_converted_values(mediator: Service, game: str) -> None:
    await populate(mediator, game)
    await mediator.create(game, "players", "3", name="pippin")
    await mediator.create(game, "players", "4", score=None)
    text = "players.score:points"
    dry = await run_copy(mediator, game, text, dry_run=True)
    assert counts(dry) == {"changed": 2, "conflicts": 1, "empty": 1}
    assert dry.sample[Kind.CONFLICTS] == ["2"]
    with pytest.raises(Conflict, match="value that does not fit: 2") as refused:
        await run_copy(mediator, game, text)
    assert refused.value.extra["next"] is None
    assert refused.value.extra["objects"] == 0
    assert set((await field_values(mediator, game, "players", "points")).values()) == {None}
    await run_copy(mediator, game, text, CopyRules(conflicts=Fallback.NULL))
    objects = [await mediator.values(game, "players", id_) for id_ in "1234"]
    points = [(object_ or {}).get("points", "missing") for object_ in objects]
    assert points == [Decimal(7), None, "missing", None]
    second = await run_copy(mediator, game, text, CopyRules(conflicts=Fallback.NULL))
    assert counts(second) == {"equal": 2, "kept": 1, "empty": 1}


async def test_orphans_and_duplicates_are_refused_without_a_rule(
    mediator: Service, game: str
) -> None:
    await populate(mediator, game)
    for n in range(10):  # so many that one lookup does not reach the others
        await mediator.create(game, "players", f"0{n}", name="merry", account=f"{n}")
    await mediator.create(game, "missions", "o", player_name="gollum")
    await mediator.create(game, "missions", "p", player_name="merry")
    dry = await run_copy(mediator, game, BY_NAME, dry_run=True)
    expected = {"changed": 2, "kept": 1, "empty": 1, "orphans": 1, "duplicates": 1}
    assert counts(dry) == expected
    sample = {"changed": ["a", "b"], "orphans": ["o"], "duplicates": ["p"], "conflicts": []}
    assert dry.sample == sample
    for rules, reason in (
        (CopyRules(duplicates=Fallback.KEEP), "does not exist: o"),
        (CopyRules(orphans=Fallback.KEEP), "more than one source: p"),
    ):
        with pytest.raises(Conflict, match=reason):
            await run_copy(mediator, game, BY_NAME, rules)
    unchanged = {"a": None, "b": None, "c": "own", "d": None, "o": None, "p": None}
    assert await field_values(mediator, game, "missions", "account") == unchanged
    assert counts(await run_copy(mediator, game, BY_NAME, KEEP)) == expected
    changed = unchanged | {"a": "free", "b": "gold"}
    assert await field_values(mediator, game, "missions", "account") == changed


async def test_an_object_with_a_dangling_reference_is_an_orphan(
    mediator: Service, game: str
) -> None:
    await mediator.create(game, "missions", "o", player="nobody")
    await mediator.create(game, "missions", "p", player=None)
    with pytest.raises(Conflict, match="does not exist: o"):
        await run_copy(mediator, game, BY_REFERENCE)
    report = await run_copy(mediator, game, BY_REFERENCE, CopyRules(orphans=Fallback.NULL))
    assert counts(report) == {"orphans": 1, "empty": 1}
    assert (await mediator.values(game, "missions", "o") or {})["account"] is None
    assert "account" not in (await mediator.values(game, "missions", "p") or {})


async def test_a_value_that_is_written_meanwhile_is_kept(
    mediator: Service, game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(mediator, game)
    first_call = iter([True])

    async def write_once() -> None:
        if next(first_call, False):
            update = Update(game, "missions", "a", unique(), values={"account": "late"})
            await mediator.mediator.data.write(update)
            await mediator.mediator.data.write(Delete(game, "missions", "b", unique()))

    before_writes(mediator, monkeypatch, write_once)
    report = await run_copy(mediator, game, BY_REFERENCE)
    assert counts(report) == {"kept": 2, "empty": 1}
    expected = {"a": "late", "c": "own", "d": None}
    assert await field_values(mediator, game, "missions", "account") == expected


async def test_an_object_that_is_written_all_the_time_is_reported(
    mediator: Service, game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(mediator, game)
    ranks = iter(range(100))

    async def write() -> None:
        values: dict[str, Value] = {"rank": next(ranks)}
        await mediator.mediator.data.write(Update(game, "missions", "a", unique(), values=values))

    before_writes(mediator, monkeypatch, write)
    report = await run_copy(mediator, game, BY_REFERENCE)
    assert counts(report) == {"failed": 1, "changed": 1, "kept": 1, "empty": 1}
    assert [problem["id"] for problem in report.problems] == ["a"]


def before_writes(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, call: Callable[[], Awaitable[None]]
) -> None:
    """Await `call` between each read of objects and the write that follows."""
    batch = mediator.mediator.data.batch

    async def call_then_batch(operations: Sequence[Operation], **options: Any) -> Any:
        if isinstance(operations[0], Update):
            await call()
        return await batch(operations, **options)

    monkeypatch.setattr(mediator.mediator.data, "batch", call_then_batch)


async def test_a_long_copy_resumes_where_it_stopped(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "PAGE", 5)
    game = await mediator.put_schema(game_on("postgres"))
    await mediator.mediator.data.batch(
        [Create(game, "players", f"p{n:04}", unique(), values={"name": f"n{n}"}) for n in range(8)]
    )
    first = await run_copy(mediator, game, "players.name:account", for_s=0.0)
    assert (first.objects, first.next) == (5, "p0004")
    second = await run_copy(mediator, game, "players.name:account", after=first.next, for_s=0.0)
    assert second.objects == 3
    last = await run_copy(mediator, game, "players.name:account", after=second.next, for_s=0.0)
    assert (last.objects, last.next) == (0, None)
    assert None not in (await all_accounts(mediator, game)).values()


async def all_accounts(mediator: Service, game: str) -> dict[str, Value]:
    query = Query(game, "players", fields=("account",), limit=1_000)
    items = (await mediator.mediator.data.query(query, STRONG)).items
    return {item.outcome.id: (item.outcome.values or {}).get("account") for item in items}


async def test_an_unavailable_system_ends_the_copy_with_a_report(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = await mediator.put_schema(game_on("postgres"))
    await populate(mediator, game)
    data = mediator.mediator.data

    async def fail(operations: Any) -> list[Outcome | MediatorError]:
        return [Unavailable("It does not answer.", system="postgres") for _ in operations]

    monkeypatch.setattr(data, "batch", fail)
    with pytest.raises(Unavailable) as refused:
        await run_copy(mediator, game, "players.name:account", CopyRules(overwrite=True))
    assert refused.value.extra["objects"] == 0
    monkeypatch.undo()
    assert counts(await run_copy(mediator, game, "players.name:account")) == {"kept": 2}


async def test_a_schema_change_meanwhile_ends_the_copy(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = game_on("postgres")
    game = await mediator.put_schema(classes)
    await populate(mediator, game)

    async def change_after_page(*arguments: Any) -> Any:
        async for page in pages(*arguments):
            classes["players"]["fields"]["more"] = field_on("postgres")
            await mediator.mediator.control.set_schema(game, {"classes": classes})
            yield page

    monkeypatch.setattr(copying, "pages", change_after_page)
    with pytest.raises(Conflict, match="changed meanwhile"):
        await run_copy(mediator, game, "players.name:account", CopyRules(overwrite=True))
    assert (await field_values(mediator, game, "players", "account"))["1"] == "free"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("text", [BY_REFERENCE, BY_NAME])
async def test_a_source_that_becomes_another_field_meanwhile_ends_the_copy(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, text: str, when: str
) -> None:
    """The schema of its class changes, that of the target's class does not."""
    classes = game_on("postgres")
    game = await mediator.put_schema(classes)
    await populate(mediator, game)
    players = classes["players"]["fields"]

    async def replace_account() -> None:
        other_fields = {name: field for name, field in players.items() if name != "account"}
        without = {"classes": {**classes, "players": {"fields": other_fields}}}
        options = ChangeOptions(drop=frozenset({"players.account"}))
        await mediator.mediator.control.set_schema(game, without, options=options)
        await mediator.mediator.control.set_schema(game, {"classes": classes})
        values: Values = {"account": "of another field"}
        await mediator.mediator.data.write(Update(game, "players", "1", unique(), values=values))

    async def read_sources(*arguments: Any) -> Any:
        if when == "before":
            await replace_account()
        sources = await sources_of(*arguments)
        if when == "after":
            await replace_account()
        return sources

    monkeypatch.setattr(copying, "sources_of", read_sources)
    with pytest.raises(Conflict, match="The schema of players was changed meanwhile"):
        await run_copy(mediator, game, text)
    assert (await field_values(mediator, game, "missions", "account"))["a"] is None


async def test_impossible_copies_are_refused(mediator: Service) -> None:
    classes = game_on("postgres")
    classes["missions"]["fields"]["rank"] |= {"required": True, "default": 1}
    game = await mediator.put_schema(classes)
    with pytest.raises(NotFound):
        await run_copy(mediator, game, "nothing.name:account")
    with pytest.raises(Invalid, match="cannot be copied"):
        await run_copy(mediator, game, "missions.rank:nothing")
    rules = CopyRules(orphans=Fallback.NULL)
    with pytest.raises(Invalid, match="impossible") as refused:
        await run_copy(mediator, game, "missions.player.score:rank", rules)
    assert refused.value.locations[0].pointer == "orphans"
    with pytest.raises(Invalid, match="impossible"):
        await run_copy(mediator, game, BY_REFERENCE, CopyRules(conflicts=Fallback.DEFAULT))
    await mediator.create(game, "missions", "m", player_name="frodo", player="nobody")
    report = await run_copy(
        mediator,
        game,
        "missions.player.score:rank",
        CopyRules(overwrite=True, orphans=Fallback.DEFAULT),
    )
    assert counts(report) == {"orphans": 1}
    assert (await mediator.values(game, "missions", "m") or {})["rank"] == 1
