"""The moves of readers and their filters in the model of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Iterator

from tests.properties.coherence.coherence_states import (
    CHECKED,
    EMPTY,
    FILLING,
    KNOWN,
    READ,
    REPORTED,
    UNKNOWN_BITS,
    WAITING,
    Copy,
    Move,
    PendingBits,
    Reader,
    Request,
    State,
    Step,
    World,
    any_pending,
    record_seen,
    with_reader,
)


def _in_filter(world: World, state: State) -> int:
    if state.saturated or state.stale_until:
        return 1
    if world.bits is PendingBits.ALL:
        return int(any_pending(state))
    return int(world.bits is PendingBits.MEMBERS and state.member)


def reader_moves(world: World, state: State, number: int, reader: Reader) -> Iterator[Move]:
    """A reader gets a new filter, or starts a read."""
    if not world.slow_filters:
        newest = reader._replace(age=0, bit=_in_filter(world, state))
        if newest != reader:
            yield Move(f"a filter: {newest.bit}", with_reader(state, number, newest))
    min_version = max((v for v, age in enumerate(state.seen, 1) if age > world.bound), default=0)
    if reader.own:
        young_read = Request(min_version, fresh=False, since=reader.own[1])
        yield _completed_read(
            world, "a read of its young copy", state, number, young_read, reader.own[0]
        )
    if reader.age < 0:
        return
    fresh = bool(reader.bit) and world.keeps(Step.REVALIDATION)
    by_filter = world.own_copies and not fresh and world.keeps(Step.YOUNG_AS_FILTER)
    request = Request(min_version, fresh, since=reader.age if by_filter else 0)
    if state.browser and not fresh:
        yield _completed_read(
            world, "a read of the browser's copy", state, number, request, state.browser[0]
        )
        return
    if fresh and world.dated:
        yield from _dated_request_moves(world, state, number, reader, request)
    label = "a revalidation" if fresh else "a plain request"
    yield Move(label, with_reader(state, number, reader._replace(request=request)))
    if world.entries and state.browser:
        conditional = request._replace(copy_version=state.browser[0])
        after = with_reader(state, number, reader._replace(request=conditional))
        yield Move(f"a revalidation of {conditional.copy_version}", after)


def _dated_request_moves(
    world: World, state: State, number: int, reader: Reader, request: Request
) -> Iterator[Move]:
    """A reader requests a dated answer, which caches can return too."""
    if state.dated and _is_young(world, state.dated[1]):
        version, since = state.dated
        aged = request._replace(since=since)
        yield _completed_read(world, "a dated answer of a cache", state, number, aged, version)
    dated = request._replace(phase=REPORTED, dated=0)
    yield Move("a dated request", with_reader(state, number, reader._replace(request=dated)))


def _is_young(world: World, age: int) -> bool:
    return age <= world.delta or not world.keeps(Step.DATED_WITHIN_DELTA)


def fetch_moves(world: World, state: State, number: int, reader: Reader) -> Iterator[Move]:
    """A filter is requested, made and received."""
    if not reader.fetch:
        requested = reader._replace(fetch=(0, UNKNOWN_BITS))
        yield Move("a filter is requested", with_reader(state, number, requested))
    elif reader.fetch[1] == UNKNOWN_BITS:
        yield from _filter_moves(world, state, number, reader)
        return
    elif reader.fetch[0] and not world.keeps(Step.TIME_BEFORE_BITS):
        timed = reader._replace(fetch=(0, reader.fetch[1]))
        yield Move("the filter's time is read", with_reader(state, number, timed))
    if reader.fetch and not reader.request:
        age = reader.fetch[0] if world.keeps(Step.AGE_FROM_SENDING) else 0
        usable = age <= world.delta
        bit = reader.fetch[1] if usable else 0
        received = Reader(age if usable else -1, bit, own=reader.own)
        yield Move("the filter arrives", with_reader(state, number, received))


def _filter_moves(world: World, state: State, number: int, reader: Reader) -> Iterator[Move]:
    """The sketch makes a filter, or a cache returns one."""
    fetch_age, bit = reader.fetch[0], _in_filter(world, state)
    after = with_reader(state, number, reader._replace(fetch=(fetch_age, bit)))
    after = after._replace(filter=(0, bit)) if world.cached_filters else after
    yield Move(f"a filter is made: {bit}", after)
    if state.filter:
        cache_age, bit = state.filter
        age = fetch_age + cache_age if world.keeps(Step.AGE_IN_CACHES) else fetch_age
        old = reader._replace(fetch=(min(age, world.delta + 1), bit))
        yield Move(f"a cached filter: {bit}", with_reader(state, number, old))


def request_moves(
    world: World, state: State, number: int, reader: Reader, request: Request
) -> Iterator[Move]:
    """A request proceeds."""
    read_first = world.read_first or not world.keeps(Step.REPORT_FIRST)
    if request.phase == WAITING:
        yield from _arrival_moves(world, state, number, reader, request, read_first=read_first)
    elif request.phase == REPORTED:
        yield from _store_read_moves(world, state, number, reader, request)
        if state.entry == (KNOWN, request.copy_version):
            unchanged = request._replace(phase=READ, version=request.copy_version)
            after = with_reader(state, number, reader._replace(request=unchanged))
            yield Move(f"the sketch knows {request.copy_version}", after)
    elif request.dated >= 0:
        yield _dated_answer_move(world, state, number, reader, request)
    elif request.phase == READ and read_first:
        yield from _report_moves(world, state, number, reader, request, CHECKED)
    else:
        yield from _answer_moves(world, state, number, request)
        if request.fill or (world.entries and not world.keeps(Step.ENTRY_LEASE)):
            yield _fill_move(state, number, reader, request)


def _arrival_moves(
    world: World, state: State, number: int, reader: Reader, request: Request, *, read_first: bool
) -> Iterator[Move]:
    """A request arrives at the proxy, which answers or forwards it."""
    if state.proxy and (not request.fresh or world.fill is not None) and request.copy_version < 0:
        ticks = state.proxy[1] if world.layers == 1 else max(world.ttls)
        answered = state._replace(browser=(state.proxy[0], ticks))
        yield _completed_read(world, "the proxy answers", answered, number, request, state.proxy[0])
    elif state.dated and not world.keeps(Step.DATED_APART):
        version = state.dated[0]
        yield _completed_read(
            world, "the proxy answers with a date", state, number, request, version
        )
    elif read_first:
        yield from _store_read_moves(world, state, number, reader, request)
    else:
        yield from _report_moves(world, state, number, reader, request, REPORTED)
        if state.grant:
            ttl = state.grant if world.keeps(Step.GRANT_ENDS) else max(world.ttls)
            granted = request._replace(phase=REPORTED, age=0, ttl=ttl)
            after = with_reader(state, number, reader._replace(request=granted))
            yield Move(f"a grant is used again: TTL {ttl}", after)


def _report_moves(
    world: World, state: State, number: int, reader: Reader, request: Request, phase: int
) -> Iterator[Move]:
    """`report_read`: a TTL, or none."""
    pending = any_pending(state) and world.keeps(Step.PENDING_CHECK)
    old = world.read_first and world.keeps(Step.VERSION_CHECK) and request.version < state.last
    refused = pending or old or state.uncacheable
    reported = request._replace(phase=phase, age=0)
    for ttl in (0,) if refused else (*world.ttls, *((0,) if world.silent else ())):
        fill = world.entries and bool(ttl) and state.entry[0] in (EMPTY, FILLING)
        granted = reported._replace(ttl=ttl, fill=fill)
        after = with_reader(state, number, reader._replace(request=granted))
        yield Move(f"report: TTL {ttl}", _hand_out(world, after, ttl) if ttl else after)
        if not world.keeps(Step.NO_STORE_UNREPORTED):
            yield Move("the report fails", after)


def _hand_out(world: World, state: State, ttl: int) -> State:
    layers = world.layers if world.keeps(Step.SUM_OF_LAYERS) else 1
    expiry = layers * ttl + (world.margin if world.keeps(Step.MARGIN) else 0)
    handed_out = max(state.handed_out, expiry) if world.keeps(Step.MAXIMUM_IN_REPORT) else expiry
    follows = state.stale_until and not world.keeps(Step.STALE_FROM_WRITES_ONLY)
    empty = world.entries and state.entry[0] == EMPTY
    return state._replace(
        handed_out=handed_out,
        stale_until=handed_out if follows else state.stale_until,
        entry=(FILLING, 0) if empty else state.entry,
        grant=max(state.grant, ttl) if world.grants else 0,
    )


def _fill_move(state: State, number: int, reader: Reader, request: Request) -> Move:
    """The version entry is set to the version that was read; all fills share the lease."""
    filled = with_reader(state, number, reader._replace(request=request._replace(fill=False)))
    entry = (KNOWN, request.version)
    return Move(f"the sketch gets {request.version}", filled._replace(entry=entry))


def _store_read_moves(
    world: World, state: State, number: int, reader: Reader, request: Request
) -> Iterator[Move]:
    lags = state.store and not world.keeps(Step.LINEARIZABLE_SOURCE)
    for version in (state.store, state.store - 1) if lags else (state.store,):
        read = request._replace(phase=READ, version=version)
        yield Move(
            f"the store reads {version}", with_reader(state, number, reader._replace(request=read))
        )


def _answer_moves(world: World, state: State, number: int, request: Request) -> Iterator[Move]:
    in_time = request.age <= world.margin or not world.keeps(Step.ANSWER_IN_TIME)
    if request.ttl and in_time:
        copy = (request.version, request.ttl)
        if world.layers > 1:  # or the answer was for a browser outside the model
            passed = state._replace(proxy=copy)
            yield _completed_read(
                world, "an answer elsewhere", passed, number, request, request.version
            )
        state = state._replace(browser=copy, proxy=copy)
    answered = with_reader(state, number, state.readers[number]._replace(request=()))
    if not world.keeps(Step.LINEARIZABLE_SOURCE):
        # The guarantee does not cover a replica's answer, but caches store it.
        yield Move(f"a replica's answer: {request.version}", answered)
        return
    yield _completed_read(world, "an answer", state, number, request, request.version)
    if not world.keeps(Step.OWN_REQUEST):
        for other, reader in enumerate(answered.readers):
            if reader.request and reader.request.phase == WAITING:
                joined = reader.request
                yield _completed_read(
                    world, "the same answer", answered, other, joined, request.version
                )


def _dated_answer_move(
    world: World, state: State, number: int, reader: Reader, request: Request
) -> Move:
    """Caches can store the answer; if its date is too old, the reader asks the origin."""
    age = request.dated if world.keeps(Step.DATED_BEFORE_READ) else 0
    cached = state._replace(dated=(request.version, age))
    if not _is_young(world, age):
        revalidation = request._replace(phase=WAITING, age=0, dated=-1)
        label = f"a dated answer, too old: {request.version}"
        return Move(label, with_reader(cached, number, reader._replace(request=revalidation)))
    aged = request._replace(since=age)
    return _completed_read(world, "a dated answer", cached, number, aged, request.version)


def _young_copy(world: World, request: Request, version: int) -> Copy:
    """Return the copy that a reader stores of any answer, with or without a TTL."""
    if not world.keeps(Step.YOUNG_FROM_SENDING):
        return (version, 0)
    return (version, request.since) if request.since <= world.delta else ()


def _completed_read(
    world: World, label: str, state: State, number: int, request: Request, version: int
) -> Move:
    """A read completes."""
    reader = state.readers[number]._replace(request=())
    if request.fresh and not world.keeps(Step.OWN_COPY_ONLY):
        reader = reader._replace(bit=0)
    if world.own_copies:
        reader = reader._replace(own=_young_copy(world, request, version))
    after = with_reader(state, number, reader)
    stale = version < request.min_version
    after = after if world.fill is not None else record_seen(after, version)
    return Move(f"{label}: {version}", after, stale, (number, version))
