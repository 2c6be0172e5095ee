// Random histories of clients, caches and writers, in virtual time: no read beyond the bound.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../../../../sketch/js/portolan.mjs";
import { Origin, START_US } from "./origin.mjs";

const DELTA_S = 1;
const IDS = ["a1", "a2", "a3"];

/** A generator of pseudo-random numbers (mulberry32). */
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Virtual time, which advances only while every task waits. */
class Time {
  now = 100;
  #sleepers = [];

  sleep = (seconds) => new Promise((wake) => this.#sleepers.push({ at: this.now + seconds, wake }));

  async run(work) {
    let isDone = false;
    const all = Promise.all(work).finally(() => (isDone = true));
    all.catch(() => {});
    for (;;) {
      await new Promise((resume) => setImmediate(resume));
      if (isDone) return all;
      this.#sleepers.sort((a, b) => a.at - b.at);
      const { at, wake } = this.#sleepers.shift();
      this.now = Math.max(this.now, at);
      wake();
    }
  }
}

/** A slow origin; its filter contains the ids of which older copies may exist. */
class SlowOrigin {
  #versions = new Map();
  #ends = new Map();
  #stale = new Map();
  #writing = new Map();
  #filters = new Origin();

  constructor(time, draw) {
    Object.assign(this, { time, draw, ttl: [0.3, 1, 3, 10][Math.floor(draw() * 4)], showsWhole: draw() < 0.7 });
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
    const staleIds = IDS.filter((id) => this.#writing.get(id) || this.#stale.get(id) > this.time.now);
    this.#filters.time = this.time.now;
    this.#filters.stale = new Set(staleIds.map((id) => `articles/${id}#main`));
    return this.#filters.fetch(url, init);
  }

  async #read(id, headers) {
    const fields = { "cache-control": "no-store" };
    if (!this.#writing.get(id)) {
      const end = this.time.now + this.ttl;
      this.#ends.set(id, Math.max(end, this.#ends.get(id) ?? 0));
      fields["portolan-expires"] = START_US + Math.round(end * 1e6);
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
    this.#stale.set(id, this.#ends.get(id));
    this.#writing.set(id, this.#writing.get(id) - 1);
    if (this.showsWhole && headers.Prefer) fields["preference-applied"] = headers.Prefer;
    await this.#pause();
    return Response.json({ n }, { headers: fields });
  }
}

/** A shared cache, which does not use filters. */
class SharedCache {
  #entries = new Map();

  constructor(origin) {
    this.origin = origin;
  }

  fetch = async (url, init) => {
    const { time } = this.origin, entry = this.#entries.get(url);
    if (!init.method && !init.headers["Cache-Control"] && entry?.end > time.now) {
      const age = Math.floor(time.now - entry.since);
      return new Response(entry.body, { headers: { ...entry.headers, age, "cache-status": "Shared; hit" } });
    }
    const since = time.now, answer = await this.origin.fetch(url, init);
    const end = (answer.headers.get("portolan-expires") - START_US) / 1e6;
    if (answer.status !== 200 || init.method || !(end > 0)) return answer;
    const body = await answer.text();
    this.#entries.set(url, { since, end, body, headers: Object.fromEntries(answer.headers) });
    return new Response(body, { headers: answer.headers });
  };
}

async function runHistory(seed, mode) {
  const time = new Time(), draw = generator(seed), origin = new SlowOrigin(time, draw);
  const caches = [new SharedCache(origin), new SharedCache(origin)];
  const acknowledged = new Map(IDS.map((id) => [id, []])), seen = new Map(IDS.map((id) => [id, []]));
  const sources = new Set();
  const latency = () => [0.001, 0.02, 0.3, 2 * draw()][Math.floor(draw() * 4)];
  const due = (id, before) =>
    Math.max(0, ...[...acknowledged.get(id), ...seen.get(id)].filter(({ at }) => at <= before).map(({ n }) => n));

  async function reader(client, own) {
    const last = {};
    for (let round = 0; round < 25; round++) {
      await time.sleep(draw() ** 2);
      const id = IDS[Math.floor(draw() * IDS.length)], refresh = draw() < 0.1, startedAt = time.now;
      const minimum = { due: due(id, refresh ? startedAt : startedAt - DELTA_S), own: own[id] ?? 0, seen: last[id] ?? 0 };
      const { value, source } = await client.get("articles", id, { refresh });
      for (const [reason, n] of Object.entries(minimum))
        assert.ok(value.n >= n, `${seed}, ${mode}: ${id} was ${value.n} at ${startedAt}, by ${source}; ${reason}: ${n}`);
      last[id] = Math.max(value.n, last[id] ?? 0);
      seen.get(id).push({ at: time.now, n: value.n });
      sources.add(source);
    }
  }

  async function writer(client, own, id) {
    for (let n = 1; n < 8; n++) {
      await time.sleep(2 * draw());
      await client.put("articles", id, { n });
      own[id] = n;
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
    const client = await connect("http://origin", "news", options), own = {};
    const writes = number < IDS.length ? [writer(client, own, IDS[number])] : [];
    await Promise.all([reader(client, own), reader(client, own), ...writes]);
    client.close();
  }

  await time.run([0, 1, 2, 3].map(session));
  return sources;
}

const SEEDS = Number(process.env.SEEDS ?? 15);

for (const mode of ["eager", "lazy"])
  test(`no read is beyond the bound: ${mode}`, async () => {
    const sources = new Set();
    for (let seed = 1; seed <= SEEDS; seed++) for (const source of await runHistory(seed, mode)) sources.add(source);
    assert.deepEqual([...sources].sort(), ["origin", "own", "shared"]);
  });
