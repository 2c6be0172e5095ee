// The JavaScript client under exact schedules, in virtual time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, PortolanError } from "../../../../sketch/js/portolan.mjs";
import { Origin } from "./origin.mjs";

async function setUp(options = {}) {
  const origin = options.origin ?? new Origin();
  const { fetch, sleep } = origin;
  const client = await connect("http://origin", "news", {
    deltaS: 10, mode: "lazy", fetch, sleep, clock: () => origin.time, ...options,
  });
  const title = async (readOptions) => {
    const { value, source } = await client.get("articles", "a1", readOptions);
    return [value?.title, source];
  };
  return { origin, client, title };
}

const bypassedCaches = (origin) => origin.reads().at(-1).headers["Cache-Control"] === "no-cache";
const flushTasks = () => new Promise((resume) => setImmediate(resume));

test("a copy is reused until its expiry, although its max-age is zero", async () => {
  const { origin, title } = await setUp();
  origin.ttl = 5;
  assert.deepEqual(await title(), ["old", "origin"]);
  origin.advance(4.9);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(0.1);
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("plain requests have no header that makes a cache forward them", async () => {
  const { origin, title } = await setUp();
  await title();
  origin.advance(9);
  origin.ttl = 0;
  await title();
  for (const { headers, cache } of origin.reads()) {
    assert.deepEqual(headers, {});
    assert.equal(cache, "default");
  }
});

test("a key in the filter is revalidated at the origin, once per filter", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.write("articles/a1", "new");
  assert.deepEqual(await title(), ["old", "own"], "the bound allows it");
  await client.refreshFilter();
  assert.deepEqual(await title(), ["new", "origin"]);
  assert.equal(origin.reads().at(-1).cache, "no-store");
  assert.ok(bypassedCaches(origin));
  assert.deepEqual(await title(), ["new", "own"]);
  await client.refreshFilter();
  assert.deepEqual(await title(), ["new", "origin"]);
  assert.equal(origin.reads().at(-1).headers["If-None-Match"], '"j1.main:2"');
});

test("the age of a filter starts at its request", async () => {
  const { origin, client, title } = await setUp();
  await title();
  const gate = origin.hold("/sketch", "read");
  const refreshing = client.refreshFilter();
  await gate.reached;
  origin.write("articles/a1", "new");
  origin.advance(6);
  gate.open();
  await refreshing;
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(5);
  assert.deepEqual(await title(), ["new", "origin"]);
});

test("the sketch's clock is estimated from the request of the filter", async () => {
  const { origin, client, title } = await setUp();
  origin.ttl = 5;
  const gate = origin.hold("/sketch", "read");
  const refreshing = client.refreshFilter();
  await gate.reached;
  origin.advance(3);
  gate.open();
  await refreshing;
  await title();
  origin.advance(5);
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("the age header of a filter counts, with a second of rounding", async () => {
  const origin = new Origin();
  origin.extraHeaders = { age: "8" };
  const { title } = await setUp({ origin });
  origin.extraHeaders = {};
  await title();
  origin.advance(0.9);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(0.2);
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("a proxy that passes filters through does not age them", async () => {
  const origin = new Origin();
  origin.extraHeaders = { age: "0", via: "1.1 proxy" };
  const { title } = await setUp({ origin, deltaS: 1 });
  await title();
  assert.deepEqual(await title(), ["old", "own"]);
});

test("a 304 renews the age of a filter", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.advance(9);
  await client.refreshFilter();
  origin.advance(9);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(2);
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("a 304 also updates the sketch's time", async () => {
  const { origin, client, title } = await setUp();
  origin.ttl = 15;
  await title();
  origin.advance(9);
  await client.refreshFilter();
  origin.advance(5.9);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(0.1);
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("the validity of a filter can be shorter than the bound", async () => {
  const { origin, title } = await setUp({ deltaS: 500 });
  await title();
  origin.advance(9.9);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(0.2);
  assert.deepEqual(await title(), ["old", "origin"]);
});

/** Puts a cache before an origin that stores filters, sends no age, and ignores `no-cache`. */
function filterCache(origin) {
  const { fetch } = origin, stored = [];
  const cache = { index: null };
  origin.fetch = async (url, init) => {
    if (!url.endsWith("/sketch")) return fetch(url, init);
    if (cache.index === null) stored.push(await fetch(url, { ...init, headers: {} }));
    return stored.at(cache.index ?? -1).clone();
  };
  return cache;
}

test("a filter older than its predecessor is refused", async () => {
  const origin = new Origin(), cache = filterCache(origin);
  const { client, title } = await setUp({ origin });
  await title();
  origin.advance(5);
  await client.refreshFilter();
  cache.index = 0;
  for (let i = 0; i < 3; i++) await assert.rejects(client.refreshFilter(), /older/);
  origin.advance(11);
  assert.deepEqual(await title(), ["old", "origin"], "the newer filter is too old by now");
  cache.index = null;
  await client.refreshFilter();
});

test("filters of a clock that was set back are used", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.advance(5);
  await client.refreshFilter();
  origin.skew = -3600;
  await client.refreshFilter();
  const filters = () => origin.requests.filter(({ url }) => url.endsWith("/sketch"));
  assert.equal(filters().at(-1).headers["Cache-Control"], "no-cache");
  assert.deepEqual(await title(), ["old", "origin"], "earlier copies are not covered");
  for (let i = 0; i < 3; i++) {
    origin.advance(9);
    assert.deepEqual(await title(), ["old", "own"]);
    await client.refreshFilter();
  }
  assert.equal(filters().at(-1).headers["Cache-Control"], undefined);
});

for (const skew of [-3600, -30])
  test(`an expired copy stays expired when the clock is set back by ${-skew} s`, async () => {
    const { origin, client, title } = await setUp();
    await title();
    origin.write("articles/a1", "new");
    origin.advance(61);
    origin.stale.clear();
    origin.skew = skew;
    await client.refreshFilter();
    assert.deepEqual(await title(), ["new", "origin"]);
  });

test("a drifting clock does not count as set back", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.advance(9);
  origin.skew -= 9 * 400e-6;
  await client.refreshFilter();
  assert.deepEqual(await title(), ["old", "own"]);
});

for (const stage of ["arrived", "read"])
  test(`a late filter does not count as a clock that was set back: ${stage}`, async () => {
    const { origin, client, title } = await setUp();
    await title();
    for (let i = 0; i < 2; i++) {
      const gate = origin.hold("/sketch", stage), refreshing = client.refreshFilter();
      await gate.reached;
      origin.advance(3);
      gate.open();
      await refreshing;
      await client.refreshFilter();
    }
    assert.deepEqual(await title(), ["old", "own"]);
  });

test("an overtaken filter does not replace a filter requested after it", async () => {
  const { origin, client, title } = await setUp();
  await title();
  const early = origin.hold("/sketch", "read"), overtaken = client.refreshFilter();
  await early.reached;
  await client.refreshFilter();
  const retry = origin.hold("/sketch", "read");
  early.open();
  await retry.reached;
  origin.write("articles/a1", "new");
  await client.refreshFilter();
  retry.open();
  await assert.rejects(overtaken, /older/);
  assert.deepEqual(await title(), ["new", "origin"]);
});

test("in lazy mode a read is revalidated while the filter is requested", async () => {
  const { origin, title } = await setUp();
  await title();
  origin.advance(11);
  const gate = origin.hold("/sketch");
  assert.deepEqual(await title(), ["old", "origin"]);
  assert.ok(bypassedCaches(origin));
  gate.open();
  await flushTasks();
  assert.deepEqual(await title(), ["old", "own"]);
});

test("in eager mode reads never find an old filter", async () => {
  const { origin, title, client } = await setUp({ mode: "eager", deltaS: 1 });
  await title();
  for (let i = 0; i < 20; i++) {
    origin.advance(0.45);
    origin.advance(0.45);
    await flushTasks();
    assert.deepEqual(await title(), ["old", "own"]);
  }
  client.close();
});

test("in eager mode filters are renewed before they become invalid", async () => {
  const { origin, title, client } = await setUp({ mode: "eager", deltaS: 500 });
  await title();
  for (let i = 0; i < 5; i++) {
    origin.advance(9.1);
    await flushTasks();
    origin.advance(0.8);
    assert.deepEqual(await title(), ["old", "own"]);
  }
  client.close();
});

test("in eager mode a failed filter request is retried within the validity", async () => {
  const { origin, client } = await setUp({ mode: "eager", deltaS: 500 });
  origin.filterStatus = 503;
  origin.advance(9.1);
  await flushTasks();
  assert.equal(client.stats.failures, 1);
  origin.filterStatus = 200;
  origin.advance(5.1);
  await flushTasks();
  assert.equal(client.stats.filters, 2);
  client.close();
});

test("filters with a validity of zero are requested with pauses", async () => {
  const origin = new Origin();
  origin.validForMs = 0;
  const { client } = await setUp({ origin, mode: "eager" });
  for (let i = 0; i < 20; i++) {
    origin.advance(0.01);
    await flushTasks();
  }
  assert.ok(client.stats.filters <= 4);
  client.close();
});

test("a read of a key in the filter does not join an older request, and is not undone by it", async () => {
  const { origin, client, title } = await setUp();
  const gate = origin.hold("/a1", "read");
  const slow = title();
  await gate.reached;
  origin.write("articles/a1", "new");
  await client.refreshFilter();
  assert.deepEqual(await title(), ["new", "origin"]);
  gate.open();
  assert.deepEqual(await slow, ["old", "origin"]);
  assert.deepEqual(await title(), ["new", "own"]);
});

test("a read under a newer filter does not join a request sent under an older filter", async () => {
  const { origin, client, title } = await setUp();
  const gate = origin.hold("/a1", "read");
  const slow = title();
  await gate.reached;
  origin.advance(9);
  await client.refreshFilter();
  await title();
  assert.equal(origin.reads().length, 2);
  gate.open();
  await slow;
});

test("reads share a request that is fresh enough for them", async () => {
  const { origin, client, title } = await setUp();
  await Promise.all([title(), title(), title()]);
  assert.equal(origin.reads().length, 1);
  assert.equal(client.stats.joined, 2);
  await Promise.all([title({ refresh: true }), title({ refresh: true })]);
  assert.equal(origin.reads().length, 3, "strong reads join nothing");
});

test("a copy younger than the bound is used although the filter contains it", async () => {
  const { origin, client, title } = await setUp();
  origin.advance(7);
  assert.deepEqual(await title({ refresh: true }), ["old", "origin"]);
  origin.write("articles/a1", "new");
  origin.advance(4);
  assert.deepEqual(await title(), ["old", "own"]);
  await flushTasks();
  assert.equal(client.stats.filters, 2);
  origin.advance(5.9);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(0.2);
  assert.deepEqual(await title(), ["new", "origin"]);
  assert.ok(bypassedCaches(origin));
});

test("a response of a shared cache is as old as the filter", async () => {
  const { origin, client, title } = await setUp({ mode: "eager" });
  origin.advance(8);
  origin.extraHeaders = { age: "3" };
  assert.deepEqual(await title(), ["old", "shared"]);
  origin.extraHeaders = {};
  origin.write("articles/a1", "new");
  origin.advance(1.5);
  await flushTasks();
  assert.equal(client.stats.filters, 2);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(0.6);
  assert.deepEqual(await title(), ["new", "origin"]);
  client.close();
});

test("a young copy is not used beyond its expiry by the clock of the last filter", async () => {
  const { origin, title } = await setUp();
  origin.ttl = 13;
  origin.advance(9);
  await title({ refresh: true });
  origin.filterStatus = 503;
  origin.ttl = 12;
  origin.advance(9.9);
  assert.deepEqual(await title(), ["old", "own"], "the filter is too old for anything but the clock");
  await title({ refresh: true });
  origin.ttl = 1;
  await title({ refresh: true });
  origin.advance(1.1);
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("a young copy that must not be cached is not used", async () => {
  const { origin, title } = await setUp();
  origin.pending.add("articles/a1");
  await title();
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("an explicitly requested filter is used", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.write("articles/a1", "new");
  await client.refreshFilter();
  origin.advance(1);
  assert.deepEqual(await title(), ["new", "origin"]);
});

test("of two explicitly requested filters the later one is used", async () => {
  const { origin, client, title } = await setUp();
  const gate = origin.hold("/sketch");
  const first = client.refreshFilter();
  await gate.reached;
  await title({ refresh: true });
  origin.write("articles/a1", "new");
  await client.refreshFilter();
  gate.open();
  await first;
  assert.deepEqual(await title(), ["new", "origin"]);
});

test("an explicitly requested filter that does not arrive changes nothing", async () => {
  const { origin, client, title } = await setUp();
  origin.stale.add("articles/a1#main");
  await client.refreshFilter();
  await title();
  origin.filterStatus = 503;
  await assert.rejects(client.refreshFilter());
  assert.deepEqual(await title(), ["old", "own"]);
});

test("a young copy is used without a filter", async () => {
  const { origin, title } = await setUp();
  origin.advance(9);
  await title({ refresh: true });
  origin.filterStatus = 503;
  origin.advance(9);
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(2);
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("a revalidation joins an earlier revalidation that is young enough", async () => {
  const { origin, client, title } = await setUp({ mode: "eager" });
  origin.stale.add("articles/a1#main");
  origin.advance(9.5);
  await flushTasks();
  const gate = origin.hold("/a1", "read");
  const first = title();
  await gate.reached;
  origin.advance(9.5);
  await flushTasks();
  assert.equal(client.stats.filters, 3);
  const second = title();
  assert.equal(client.stats.joined, 1);
  origin.advance(0.6);
  assert.deepEqual(await title(), ["old", "origin"]);
  assert.equal(client.stats.joined, 1);
  assert.equal(origin.reads().length, 2);
  gate.open();
  await Promise.all([first, second]);
  client.close();
});

test("a copy confirmed during a pending write is returned while it is young", async () => {
  const { origin, client, title } = await setUp({ mode: "eager" });
  await title();
  origin.stale.add("articles/a1#main");
  origin.advance(9.5);
  await flushTasks();
  origin.advance(1);
  origin.pending.add("articles/a1");
  assert.deepEqual(await title(), ["old", "origin"]);
  assert.equal(origin.reads()[1].headers["If-None-Match"], '"j1.main:1"');
  origin.pending.clear();
  origin.stale.clear();
  origin.advance(9);
  await flushTasks();
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(1.1);
  assert.deepEqual(await title(), ["old", "origin"], "filters do not cover it any more");
  client.close();
});

test("a confirmed uncacheable entry remains uncacheable", async () => {
  const { origin, title } = await setUp();
  origin.pending.add("articles/a1");
  for (let i = 0; i < 3; i++) assert.deepEqual(await title({ refresh: true }), ["old", "origin"]);
  assert.deepEqual(await title(), ["old", "origin"]);
  for (const { headers } of origin.reads()) assert.equal(headers["If-None-Match"], undefined);
});

test("a response overtaken by a newer one is not used again", async () => {
  const { origin, title } = await setUp();
  const late = origin.hold("/a1");
  const first = title({ refresh: true });
  await late.reached;
  const early = origin.hold("/a1", "read");
  const second = title({ refresh: true });
  await early.reached;
  origin.write("articles/a1", "new");
  late.open();
  assert.deepEqual(await first, ["new", "origin"]);
  early.open();
  assert.deepEqual(await second, ["old", "origin"], "it was requested before the first response arrived");
  assert.deepEqual(await title(), ["new", "own"]);
});

test("a read does not join an overtaken request", async () => {
  const { origin, client, title } = await setUp();
  const late = origin.hold("/a1");
  const first = title({ refresh: true });
  await late.reached;
  const early = origin.hold("/a1", "read");
  const second = title({ refresh: true });
  await early.reached;
  origin.write("articles/a1", "new");
  origin.pending.add("articles/a1");
  late.open();
  assert.deepEqual(await first, ["new", "origin"]);
  const third = title();
  assert.equal(client.stats.joined, 0, "that response is young enough, but older than a version already returned");
  early.open();
  await second;
  assert.deepEqual(await third, ["new", "origin"]);
});

test("no shared cache answers after a response newer than the filter that was not cached", async () => {
  const { origin, client, title } = await setUp();
  const gate = origin.hold("/a1");
  const slow = title({ refresh: true });
  await gate.reached;
  await client.refreshFilter();
  origin.write("articles/a1", "new");
  origin.pending.add("articles/a1");
  gate.open();
  assert.deepEqual(await slow, ["new", "origin"]);
  assert.deepEqual(await title(), ["new", "origin"]);
  assert.ok(bypassedCaches(origin), "caches may hold an older version");
});

for (const [first, last, newer] of [
  ['"j1.main:2"', '"j1.main:3"', "last"],
  ['"j1.main:10"', '"j1.main:9"', "first"],
  ['"j1.main:9007199254740993"', '"j1.main:9007199254740992"', "first"],
  ['"j1.main:9007199254740992"', '"j1.main:9007199254740993"', "last"],
  ['"j1.main:2"', 'W/"j1.main:3"', "last"],
  ['W/"j1.main:3"', '"j1.main:2"', "first"],
  ['"j1.hits:1.main:2"', '"j1.hits:1.main:3"', "last"],
  ['"j1.hits:2.main:3"', '"j1.hits:1.main:3"', "first"],
  ['"j1.hits:1.main:3"', '"j1.hits:2.main:2"'],
  ['"j1.main:2"', '"j2.main:3"'],
  ['"j1.main:2"', '"j1.hits:3"'],
  ['"j1.hits:1.main:2"', '"j1.main:3"'],
  ['"j1.hits:-.main:3"', '"j1.hits:1.main:3"'],
  ['"3f2a:1"', '"3f2a:2"'],
])
  test(`of two concurrent responses the ETags show the newer one: ${first}, ${last}`, async () => {
    const { origin, title } = await setUp();
    const state = (etag, title) => origin.objects.set("articles/a1", { title, etag });
    state(first, "first");
    await title({ refresh: true });
    state(last, "last");
    const gate = origin.hold("/a1", "read");
    const slow = title({ refresh: true });
    await gate.reached;
    state(first, "first");
    await title({ refresh: true });
    gate.open();
    await slow;
    assert.deepEqual(await title(), newer ? [newer, "own"] : ["first", "origin"]);
  });

test("of two concurrent responses the newer one is as fresh as both", async () => {
  const { origin, title } = await setUp();
  const gate = origin.hold("/a1");
  const slow = title({ refresh: true });
  await gate.reached;
  origin.advance(8);
  await title({ refresh: true });
  origin.write("articles/a1", "new");
  gate.open();
  await slow;
  origin.advance(9);
  origin.filterStatus = 503;
  assert.deepEqual(await title(), ["new", "own"]);
});

test("an uncacheable response with the cached version keeps the copy", async () => {
  const { origin, title } = await setUp();
  const gate = origin.hold("/a1");
  const slow = title({ refresh: true });
  await gate.reached;
  await title({ refresh: true });
  origin.pending.add("articles/a1");
  gate.open();
  await slow;
  assert.deepEqual(await title(), ["old", "own"]);
});

for (const last of ['"j2.main:1"', null])
  test(`a third response does not decide which of two is newer: ${last}`, async () => {
    const { origin, client, title } = await setUp();
    const read = () => title({ refresh: true, missingOk: true });
    const become = (etag) =>
      etag ? origin.objects.set("articles/a1", { title: etag, etag }) : origin.objects.delete("articles/a1");
    become(last);
    const reads = [];
    for (let n = 0; n < 2; n++) {
      const gate = origin.hold("/a1", "read");
      reads.push([gate, read()]);
      await gate.reached;
    }
    become('"j1.main:5"');
    await read();
    for (const [gate, reading] of reads) {
      gate.open();
      await reading;
    }
    assert.equal((await client.get("articles", "a1")).source, "origin");
  });

test("a missing object is missing in both responses", async () => {
  const { origin, client } = await setUp();
  const none = (options) => client.get("articles", "none", { missingOk: true, ...options });
  const gate = origin.hold("/none");
  const slow = none({ refresh: true });
  await gate.reached;
  await none({ refresh: true });
  gate.open();
  await slow;
  assert.equal((await none()).source, "own");
  const other = origin.hold("/none", "read");
  const before = none({ refresh: true });
  await other.reached;
  origin.write("articles/none", "there");
  await none({ refresh: true });
  other.open();
  await before;
  assert.equal((await none()).source, "origin", "it is unknown which response is newer");
});

test("a client sees its own write before any filter does", async () => {
  const { origin, client, title } = await setUp();
  await title();
  const gate = origin.hold("/sketch", "read");
  const refreshing = client.refreshFilter();
  await gate.reached;
  const written = await client.put("articles", "a1", { title: "mine" });
  assert.equal(written.position, "p1");
  gate.open();
  await refreshing;
  assert.deepEqual(await title(), ["mine", "origin"]);
  assert.deepEqual(await title(), ["mine", "own"]);
  await assert.rejects(client.put("articles", "a1", {}, { ifMatch: '"x"' }), {
    status: 412, kind: "precondition-failed",
  });
});

test("reads during an own write can precede it", async () => {
  const { origin, client, title } = await setUp();
  await title();
  const gate = origin.hold("/a1");
  const writing = client.put("articles", "a1", { title: "mine" });
  await gate.reached;
  assert.deepEqual(await title(), ["old", "own"]);
  gate.open();
  await writing;
  assert.deepEqual(await title(), ["mine", "origin"]);
});

test("the representation of a write is cached within the bound", async () => {
  for (const method of ["put", "patch"]) {
    const { origin, client, title } = await setUp();
    origin.returnsObject = true;
    const { etag } = await client[method]("articles", "a1", { title: "mine" });
    origin.advance(9);
    assert.deepEqual(await client.get("articles", "a1"), { value: { title: "mine" }, etag, source: "own" });
    assert.deepEqual(origin.reads(), []);
    origin.advance(2);
    assert.deepEqual(await title(), ["mine", "origin"]);
    assert.equal(origin.reads()[0].headers["If-None-Match"], etag);
  }
});

test("the representation of a write expires at the bound, whatever the filter contains", async () => {
  const { origin, client, title } = await setUp({ mode: "eager" });
  origin.returnsObject = true;
  await client.patch("articles", "a1", { title: "mine" });
  origin.stale.clear();
  origin.advance(9.5);
  await flushTasks();
  assert.deepEqual(await title(), ["mine", "own"]);
  origin.advance(0.6);
  assert.deepEqual(await title(), ["mine", "origin"]);
  assert.ok(!bypassedCaches(origin), "the filter includes the write");
  client.close();
});

test("the representation of a write is as old as its request", async () => {
  const { origin, client, title } = await setUp();
  origin.returnsObject = true;
  const gate = origin.hold("/a1", "read");
  const writing = client.patch("articles", "a1", { title: "mine" });
  await gate.reached;
  origin.advance(9);
  gate.open();
  await writing;
  origin.write("articles/a1", "new");
  assert.deepEqual(await title(), ["mine", "own"]);
  origin.advance(1.1);
  assert.deepEqual(await title(), ["new", "origin"]);
});

for (const stage of ["arrived", "read"])
  test(`of two own writes the later one is kept, whichever is answered last: ${stage}`, async () => {
    const { origin, client, title } = await setUp();
    origin.returnsObject = true;
    const gate = origin.hold("/a1", stage);
    const patching = client.patch("articles", "a1", { title: "held" });
    await gate.reached;
    await client.put("articles", "a1", { title: "other" });
    assert.deepEqual(await title(), ["other", "own"]);
    gate.open();
    await patching;
    assert.deepEqual(await title(), [stage === "read" ? "other" : "held", "own"]);
  });

test("a newer read during an own write is not hidden by its response", async () => {
  const { origin, client, title } = await setUp();
  origin.returnsObject = true;
  const gate = origin.hold("/a1", "read");
  const writing = client.patch("articles", "a1", { title: "mine" });
  await gate.reached;
  origin.write("articles/a1", "theirs");
  assert.deepEqual(await title({ refresh: true }), ["theirs", "origin"]);
  gate.open();
  await writing;
  assert.deepEqual(await title(), ["theirs", "own"], "its version shows that it includes the write");
});

test("a write without a whole representation leaves no copy", async () => {
  const { origin, client, title } = await setUp();
  await client.patch("articles", "a1", { title: "mine" });
  assert.equal(origin.requests.at(-1).headers.Prefer, "return=representation");
  assert.deepEqual(await title(), ["mine", "origin"]);
});

test("a write to an uncached class is not cached", async () => {
  const origin = new Origin();
  origin.groups = { notes: { main: ["title"] } };
  origin.returnsObject = true;
  const { client, title } = await setUp({ origin, cacheBytes: 400 });
  const note = () => client.get("notes", "n1", { missingOk: true });
  await note();
  await client.patch("articles", "a1", { title: "mine" });
  assert.deepEqual(await title(), ["mine", "origin"]);
  await note();
  await client.patch("articles", "a1", { title: "mine" });
  assert.equal((await note()).source, "own", "the write did not evict it");
});

for (const inFilter of [false, true])
  test(`a read after an own write joins no request from before it ended: ${inFilter}`, async () => {
    const { origin, client, title } = await setUp();
    if (inFilter) origin.stale.add("articles/a1#main");
    await client.refreshFilter();
    const gate = origin.hold("/a1", "read");
    const before = title({ refresh: true });
    await gate.reached;
    await client.patch("articles", "a1", { title: "mine" });
    const after = title();
    assert.equal(client.stats.joined, 0);
    gate.open();
    assert.deepEqual(await before, ["old", "origin"]);
    assert.deepEqual(await after, ["mine", "origin"]);
    assert.deepEqual(await title(), ["mine", "own"]);
  });

test("too many own writes count as writes of all objects, until a filter includes them", async () => {
  const { origin, client } = await setUp();
  const other = async () => (await client.get("articles", "a2", { missingOk: true })).source;
  await other();
  for (let n = 0; n < 10_000; n++) client.doubt("articles", `b${n}`);
  assert.equal(await other(), "own");
  await client.patch("articles", "a1", { title: "mine" });
  assert.equal(await other(), "origin");
  assert.equal(await other(), "own");
  origin.advance(21);
  await client.refreshFilter();
  await client.patch("articles", "a1", { title: "mine" });
  assert.equal(await other(), "own");
});

test("the representation of a creation is not used as a query result", async () => {
  const { origin, client } = await setUp({ headers: { Prefer: "return=representation" } });
  origin.returnsObject = true;
  await client.post("articles", { id: "a2", title: "mine" });
  assert.equal((await client.query("articles")).source, "origin");
});

test("a copy older than an own write is not used, even if the filter includes the write", async () => {
  const { origin, client, title } = await setUp({ mode: "eager" });
  await title();
  origin.advance(8);
  await title({ refresh: true });
  await client.patch("articles", "a1", { title: "mine" });
  origin.advance(1.5);
  await flushTasks();
  assert.equal(client.stats.filters, 2);
  assert.deepEqual(await title(), ["mine", "origin"]);
  client.close();
});

test("own writes survive a change of the cache groups", async () => {
  const { origin, client, title } = await setUp({ mode: "eager" });
  origin.advance(8);
  await title();
  await client.patch("articles", "a1", { title: "mine" });
  origin.groups = { articles: { head: ["title"], hits: ["hits"] } };
  origin.stale.clear();
  origin.advance(1.5);
  await flushTasks();
  assert.equal(client.stats.filters, 2);
  assert.deepEqual(await title(), ["mine", "origin"]);
  assert.ok(bypassedCaches(origin));
  client.close();
});

test("a write counts for all groups of its object", async () => {
  const { client } = await setUp();
  const hits = async () => (await client.get("articles", "a1", { fields: ["hits"] })).source;
  await hits();
  for (const write of [
    () => client.patch("articles", "a1", { title: "mine" }),
    () => client.patch("articles", "a1", { title: { set: "mine" } }, { form: "update" }),
    () => client.put("articles", "a1", { title: "mine" }, { fields: ["title"] }),
  ]) {
    assert.equal(await hits(), "own");
    await write();
    assert.equal(await hits(), "origin", "the service may set the time of the last write");
  }
});

test("a write to one object does not affect other objects", async () => {
  const { client, title } = await setUp();
  await title();
  await client.patch("articles", "a2", { title: "mine" });
  assert.deepEqual(await title(), ["old", "own"]);
});

for (const [kind, damage] of Object.entries({
  checksum: (raw) => raw.with(raw.length - 1, raw.at(-1) ^ 1),
  cut: (raw) => raw.slice(0, -9),
  empty: () => new Uint8Array(),
  version: (raw) => raw.with(4, 2),
}))
  test(`after a broken filter everything is revalidated: ${kind}`, async () => {
    const { origin, client, title } = await setUp();
    await title();
    origin.write("articles/a1", "new");
    origin.damage = damage;
    await assert.rejects(client.refreshFilter(), PortolanError);
    assert.deepEqual(await title(), ["new", "origin"]);
    assert.ok(bypassedCaches(origin));
  });

test("without new filters, reads are revalidated once the last filter is too old", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.filterStatus = 503;
  await assert.rejects(client.refreshFilter(), { status: 503, kind: "unavailable" });
  assert.deepEqual(await title(), ["old", "own"]);
  origin.advance(10.1);
  assert.deepEqual(await title(), ["old", "origin"]);
  for (const id of ["a2", "a3"]) {
    await client.get("articles", id, { missingOk: true });
    assert.ok(bypassedCaches(origin));
    await flushTasks();
  }
  assert.equal(client.stats.failures, 2, "the filter is not requested at every read");
});

test("a new generation, or a new map, causes every copy to be revalidated", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.generation = 2;
  await client.refreshFilter();
  assert.deepEqual(await title(), ["old", "origin"]);
  assert.ok(bypassedCaches(origin));
  origin.groups = { articles: { main: ["title", "hits"] } };
  await client.refreshFilter();
  assert.deepEqual(await title(), ["old", "origin"]);
  assert.ok(bypassedCaches(origin));
});

test("a copy confirmed during a change of generation is revalidated", async () => {
  const { origin, client, title } = await setUp();
  const gate = origin.hold("/sketch");
  const refreshing = client.refreshFilter();
  await gate.reached;
  await title({ refresh: true });
  origin.generation = 2;
  gate.open();
  await refreshing;
  assert.deepEqual(await title(), ["old", "own"], "it is young enough without a filter");
  await client.refreshFilter();
  assert.deepEqual(await title(), ["old", "origin"]);
  assert.ok(bypassedCaches(origin));
});

test("a copy requested before a loss is revalidated", async () => {
  const { origin, client, title } = await setUp();
  const gate = origin.hold("/a1", "read");
  const slow = title();
  await gate.reached;
  origin.generation = 2;
  origin.write("articles/a1", "new");
  origin.stale.clear();
  await client.refreshFilter();
  gate.open();
  assert.deepEqual(await slow, ["old", "origin"]);
  assert.deepEqual(await title(), ["new", "origin"]);
});

test("a response requested before a loss does not replace a later copy", async () => {
  const { origin, client, title } = await setUp();
  const gate = origin.hold("/a1", "read");
  const slow = title();
  await gate.reached;
  origin.generation = 2;
  origin.write("articles/a1", "new");
  await client.refreshFilter();
  assert.deepEqual(await title(), ["new", "origin"]);
  gate.open();
  assert.deepEqual(await slow, ["old", "origin"]);
  assert.deepEqual(await title(), ["new", "own"]);
});

for (const late of [false, true])
  test(`a reader does not return to an older version after a loss between two requests: ${late}`, async () => {
    const { origin, client, title } = await setUp();
    const gate = origin.hold("/a1");
    const before = title();
    await gate.reached;
    origin.generation = 2;
    await client.refreshFilter();
    const other = late && origin.hold("/a1", "read");
    const after = title();
    await (late ? other.reached : after);
    origin.write("articles/a1", "new");
    gate.open();
    assert.deepEqual(await before, ["new", "origin"]);
    if (late) other.open();
    assert.deepEqual(await after, ["old", "origin"]);
    assert.equal((await title())[0], "new");
  });

test("a filter with revalidate-all revalidates everything", async () => {
  const origin = new Origin();
  origin.flags = 1;
  const { title } = await setUp({ origin });
  await title();
  assert.ok(bypassedCaches(origin));
});

test("a missing object is an error, or no value", async () => {
  const { client } = await setUp();
  await assert.rejects(client.get("articles", "none"), { status: 404, kind: "not-found" });
  assert.equal((await client.get("articles", "none", { missingOk: true })).source, "own");
});

test("a hit of the service itself counts as the origin, a hit of another cache does not", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.write("articles/a1", "new");
  await client.refreshFilter();
  origin.extraHeaders = { "cache-status": "Portolan; hit; ttl=5" };
  assert.deepEqual(await title(), ["new", "origin"]);
  assert.deepEqual(await title(), ["new", "own"]);
  await client.refreshFilter();
  origin.extraHeaders = { "cache-status": "Portolan; hit; ttl=5, Varnish; hit" };
  assert.deepEqual(await title(), ["new", "shared"]);
  origin.extraHeaders.via = "1.1 varnish";
  origin.advance(2);
  assert.deepEqual(await title(), ["new", "shared"], "the hit has no Age header");
  assert.deepEqual(await title(), ["new", "shared"], "a proxy without an Age header confirms no age");
});

test("a response from a view is revalidated with strong consistency", async () => {
  const { origin, title } = await setUp();
  origin.extraHeaders = { "portolan-staleness": "bound=60, measured=3" };
  await title();
  await title({ refresh: true });
  const preferences = origin.reads().map(({ headers }) => headers.Prefer);
  assert.deepEqual(preferences, [undefined, "consistency=strong", "consistency=strong"]);
});

test("a no-store response is not cached, and does not hide a newer version", async () => {
  const { origin, client, title } = await setUp();
  origin.ttl = 0;
  await title({ refresh: true });
  await title();
  assert.ok(bypassedCaches(origin), "a cache on the path may hold an older version");
  assert.equal(origin.reads().at(-1).headers["If-None-Match"], undefined);
  await client.refreshFilter();
  await title();
  assert.ok(!bypassedCaches(origin));
  origin.extraHeaders = { "cache-control": "no-store" };
  origin.ttl = 60;
  await title();
  assert.deepEqual(await title(), ["old", "origin"]);
});

test("the cache stays within its size", async () => {
  const { origin, client } = await setUp({ cacheBytes: 1000 });
  for (let i = 0; i < 2; i++)
    for (let n = 0; n < 9; n++) await client.get("articles", `b${n}`, { missingOk: true });
  assert.equal(client.stats.hits, 0);
  assert.equal(origin.reads().length, 18);
});

test("closing aborts requests in flight", async () => {
  const { origin, client, title } = await setUp({ mode: "eager" });
  origin.hold("/a1");
  const reading = title();
  client.close();
  await assert.rejects(reading, { status: 0 });
});

test("every id has an address", async () => {
  const { origin, client } = await setUp();
  for (const id of ["query", "ä/#?% +", "!'()*~", "%41", "日本"]) {
    origin.objects.set(`articles/${id}`, { title: id, version: 1 });
    assert.equal((await client.get("articles", id)).value.title, id);
  }
  assert.ok(origin.reads()[0].url.endsWith("/%71uery"));
  await assert.rejects(client.get("articles", ".."), RangeError);
});

const parameters = { order: "-hits", title: "old" };
const KEY = "articles//order=-hits&title=old";
const ids = ({ items }) => items.map(({ id }) => id);

test("the result of a query is reused until its expiry, and revalidated if the filter contains its key", async () => {
  const { origin, client } = await setUp();
  const first = await client.query("articles", parameters);
  assert.deepEqual([first.items, first.next, first.source], [[{ id: "a1", title: "old" }], null, "origin"]);
  assert.ok(origin.reads()[0].url.endsWith("/v1/news/articles?order=-hits&title=old"));
  assert.deepEqual(origin.reads()[0].headers, {});
  origin.objects.set("articles/a2", { title: "old", version: 1 });
  const repeated = await client.query("articles", parameters);
  assert.deepEqual([ids(repeated), repeated.source], [["a1"], "own"], "the bound allows it");
  origin.stale.add(KEY);
  await client.refreshFilter();
  const fresh = await client.query("articles", parameters);
  assert.deepEqual([ids(fresh), fresh.source], [["a1", "a2"], "origin"]);
  assert.ok(bypassedCaches(origin));
  assert.equal((await client.query("articles", parameters)).source, "own");
  origin.advance(61);
  await client.refreshFilter();
  assert.equal((await client.query("articles", parameters)).source, "origin");
});

test("without a fresh filter a query goes to the origin", async () => {
  const { origin, client } = await setUp();
  await client.query("articles", parameters);
  assert.ok(!bypassedCaches(origin));
  await client.query("nothing");
  assert.ok(bypassedCaches(origin), "the class is not in the map");
  origin.filterStatus = 503;
  origin.advance(11);
  await client.query("articles", parameters);
  assert.ok(bypassedCaches(origin));
});

test("queries include the client's own writes to their class, also with ids that the service creates", async () => {
  const { origin, client } = await setUp();
  origin.groups.notes = { main: ["title"] };
  await client.refreshFilter();
  const source = async (name) => (await client.query(name, parameters)).source;
  await source("notes");
  for (const write of [
    () => client.put("articles", "a2", { title: "old" }),
    () => client.patch("articles", "a2", { title: "old" }),
    () => client.post("articles", { title: "old" }),
    () => client.post("transactions", { reads: [], operations: [] }, { touches: ["articles"] }),
    async () => client.doubt("articles", "a1"),
    () => client.delete("articles", "a2"),
  ]) {
    await source("articles");
    assert.equal(await source("articles"), "own");
    await write();
    assert.equal(await source("articles"), "origin");
    assert.ok(bypassedCaches(origin));
    assert.equal(await source("notes"), "own");
  }
});

test("a query sent before an own write ended is not used for a query after it", async () => {
  const { origin, client } = await setUp();
  const gate = origin.hold("title=old", "read");
  const before = client.query("articles", parameters);
  await gate.reached;
  await client.put("articles", "a2", { title: "old" });
  const after = client.query("articles", parameters);
  assert.deepEqual(ids(await after), ["a1", "a2"]);
  gate.open();
  assert.deepEqual(ids(await before), ["a1"]);
  assert.deepEqual(ids(await client.query("articles", parameters)), ["a1", "a2"]);
});

test("one by one, a query lists ids, and its objects are read as by get", async () => {
  const { origin, client, title } = await setUp();
  await title();
  origin.objects.set("articles/a2", { title: "new", version: 1 });
  const result = await client.query("articles", { fields: ["title"] }, { oneByOne: true });
  assert.ok(origin.reads()[1].url.endsWith("/articles?fields=id"));
  assert.deepEqual(result.items, [{ title: "old" }, { title: "new" }]);
  assert.equal((await client.get("articles", "a2", { fields: ["title"] })).source, "own");
  await client.query("articles", {}, { oneByOne: true });
  assert.equal(origin.reads().length, 5, "the list and a1 were cached, of a2 only the title");
});

test("a query of a missing class is an error", async () => {
  const { origin, client } = await setUp();
  origin.failure = { status: 404, body: '{"type": "/problems/not-found"}' };
  await assert.rejects(client.query("articles"), { status: 404, kind: "not-found" });
});
