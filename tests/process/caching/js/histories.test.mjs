// Random histories of clients, caches and writers, in virtual time: no read exceeds the bound.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../../../../sketch/js/portolan.mjs";
import { Origin, START_US } from "./origin.mjs";

const DELTA_S = 1;
const IDS = ["a1", "a2", "a3"];

/** Returns a seeded random number generator (mulberry32). */
function seededRandom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Virtual time, which advances only when all tasks wait. */
class Time {
  now = 100;
  #sleepers = [];

  sleep = (seconds) => new Promise((wake) => this.#sleepers.push({ at: this.now + seconds, wake }));

  async run(work) {
    let isOver = false;
    const all = Promise.all(work).finally(() => (isOver = true));
    all.catch(() => {});
    for (;;) {
      await new Promise((resume) => setImmediate(resume));
      if (isOver) return all;
      this.#sleepers.sort((a, b) => a.at - b.at);
      const { at, wake } = this.#sleepers.shift();
      this.now = Math.max(this.now, at);
      wake();
    }
  }
}

/** An origin with delays; its filter contains the objects of which outdated copies can exist. */
class SlowOrigin {
  #versions = new Map();
  #expiries = new Map();
  #stale = new Map();
  #writing = new Map();
  #filters = new Origin();

  constructor(time, draw) {
    Object.assign(this, { time, draw, ttl: [0.3, 1, 3, 10][Math.floor(draw() * 4)], returnsObject: draw() < 0.7 });
    this.#filters.groups = { articles: { main: ["n"] } };
  }

  #pause = () => this.time.sleep(this.draw() ** 4);

  fetch = async (url, init) => {
    await this.#pause();
    if (url.endsWith("/sketch")) return this.#filter(url, init);
    const id = url.split("/").pop();
    return init.method ? this.#write(id, JSON.parse(init.body).n, init.headers) : this.#read(id, init.headers);
  };

  async #filter(url, init) {
    const outdated = IDS.filter((id) => this.#writing.get(id) || this.#stale.get(id) > this.time.now);
    this.#filters.time = this.time.now;
    this.#filters.stale = new Set(outdated.map((id) => `articles/${id}#main`));
    return this.#filters.fetch(url, init);
  }

  async #read(id, headers) {
    const fields = { "cache-control": "no-store" };
    if (!this.#writing.get(id)) {
      const expiry = this.time.now + this.ttl;
      this.#expiries.set(id, Math.max(expiry, this.#expiries.get(id) ?? 0));
      fields["portolan-expires"] = START_US + Math.round(expiry * 1e6);
      fields["cache-control"] = `public, max-age=0, s-maxage=${this.ttl}`;
    }
    await this.#pause();
    const { n, version } = this.#versions.get(id) ?? { n: 0, version: 1 };
    fields.etag = `"j1.main:${version}"`;
    await this.#pause();
    if (headers["If-None-Match"] === fields.etag) return new Response(null, { status: 304, headers: fields });
    return Response.json({ n }, { headers: fields });
  }

  async #write(id, n, headers) {
    this.#writing.set(id, (this.#writing.get(id) ?? 0) + 1);
    await this.#pause();
    const version = (this.#versions.get(id)?.version ?? 1) + 1, fields = { etag: `"j1.main:${version}"` };
    this.#versions.set(id, { n, version });
    await this.#pause();
    this.#stale.set(id, this.#expiries.get(id));
    this.#writing.set(id, this.#writing.get(id) - 1);
    if (this.returnsObject && headers.Prefer) fields["preference-applied"] = headers.Prefer;
    await this.#pause();
    return Response.json({ n }, { headers: fields });
  }
}

/** A shared cache on the path, which does not use filters. */
class SharedCache {
  #stored = new Map();

  constructor(origin) {
    this.origin = origin;
  }

  fetch = async (url, init) => {
    const { time } = this.origin, copy = this.#stored.get(url);
    if (!init.method && !init.headers["Cache-Control"] && copy?.end > time.now) {
      const age = Math.floor(time.now - copy.since);
      return new Response(copy.body, { headers: { ...copy.headers, age, "cache-status": "Shared; hit" } });
    }
    const since = time.now, answer = await this.origin.fetch(url, init);
    const end = (answer.headers.get("portolan-expires") - START_US) / 1e6;
    if (answer.status !== 200 || init.method || !(end > 0)) return answer;
    const body = await answer.text();
    this.#stored.set(url, { since, end, body, headers: Object.fromEntries(answer.headers) });
    return new Response(body, { headers: answer.headers });
  };
}

async function runHistory(seed, mode) {
  const time = new Time(), draw = seededRandom(seed), origin = new SlowOrigin(time, draw);
  const caches = [new SharedCache(origin), new SharedCache(origin)];
  const acknowledged = new Map(IDS.map((id) => [id, []])), seen = new Map(IDS.map((id) => [id, []]));
  const sources = new Set();
  const latency = () => [0.001, 0.02, 0.3, 2 * draw()][Math.floor(draw() * 4)];
  const latestBefore = (id, before) =>
    Math.max(0, ...[...acknowledged.get(id), ...seen.get(id)].filter(({ at }) => at <= before).map(({ n }) => n));

  async function reader(client, ownWrites) {
    const last = {};
    for (let i = 0; i < 25; i++) {
      await time.sleep(draw() ** 2);
      const id = IDS[Math.floor(draw() * IDS.length)], refresh = draw() < 0.1, startedAt = time.now;
      const bound = latestBefore(id, refresh ? startedAt : startedAt - DELTA_S);
      const minima = { bound, own: ownWrites[id] ?? 0, seen: last[id] ?? 0 };
      const { value, source } = await client.get("articles", id, { refresh });
      for (const [why, n] of Object.entries(minima))
        assert.ok(value.n >= n, `${seed}, ${mode}: ${id} was ${value.n} at ${startedAt}, by ${source}; ${why}: ${n}`);
      last[id] = Math.max(value.n, last[id] ?? 0);
      seen.get(id).push({ at: time.now, n: value.n });
      sources.add(source);
    }
  }

  async function writer(client, ownWrites, id) {
    for (let n = 1; n < 8; n++) {
      await time.sleep(2 * draw());
      await client.put("articles", id, { n });
      ownWrites[id] = n;
      acknowledged.get(id).push({ at: time.now, n });
    }
  }

  async function session(number) {
    const fetch = async (url, init) => {
      await time.sleep(latency());
      const answer = await caches[number % 2].fetch(url, init);
      await time.sleep(latency());
      return answer;
    };
    const options = { deltaS: DELTA_S, mode, fetch, sleep: time.sleep, clock: () => time.now };
    const client = await connect("http://origin", "news", options), ownWrites = {};
    const writes = number < IDS.length ? [writer(client, ownWrites, IDS[number])] : [];
    await Promise.all([reader(client, ownWrites), reader(client, ownWrites), ...writes]);
    client.close();
  }

  await time.run([0, 1, 2, 3].map(session));
  return sources;
}

const SEEDS = Number(process.env.SEEDS ?? 15);

for (const mode of ["eager", "lazy"])
  test(`no read exceeds the bound: ${mode}`, async () => {
    const sources = new Set();
    for (let seed = 1; seed <= SEEDS; seed++) for (const source of await runHistory(seed, mode)) sources.add(source);
    assert.deepEqual([...sources].sort(), ["origin", "own", "shared"]);
  });
