// An in-memory origin behind a fake `fetch`: the tests set its time and the contents of its filter.
import { positions } from "../../../../sketch/js/portolan.mjs";

const SHAPE = { m: 8192, k: 4, seed: 7 };
export const START_US = 1_800_000_000_000_000;

export class Origin {
  time = 100;
  skew = 0;
  ttl = 60;
  validForMs = 10_000;
  objects = new Map([["articles/a1", { title: "old", version: 1 }]]);
  stale = new Set();
  pending = new Set();
  returnsObject = false;
  groups = { articles: { main: ["title"], hits: ["hits"] } };
  generation = 1;
  flags = 0;
  failure = null;
  filterStatus = 200;
  extraHeaders = {};
  damage = (bytes) => bytes;
  requests = [];
  #gates = [];

  advance(seconds) {
    this.time += seconds;
    for (const sleeper of this.sleepers.splice(0)) {
      if (sleeper.at <= this.time) sleeper.wake();
      else this.sleepers.push(sleeper);
    }
  }

  sleepers = [];
  sleep = (seconds) => new Promise((wake) => this.sleepers.push({ at: this.time + seconds, wake }));

  /** Holds the next request whose address ends with `end`, before or after its data is read. */
  hold(end, stage = "arrived") {
    const gate = { end, stage };
    gate.reached = new Promise((reach) => (gate.reach = reach));
    gate.opened = new Promise((open) => (gate.open = open));
    this.#gates.push(gate);
    return gate;
  }

  async #pass(url, stage) {
    const index = this.#gates.findIndex((gate) => url.endsWith(gate.end) && gate.stage === stage);
    if (index < 0) return;
    const [gate] = this.#gates.splice(index, 1);
    gate.reach();
    await gate.opened;
  }

  reads() {
    return this.requests.filter(({ method, url }) => method === "GET" && !url.endsWith("/sketch"));
  }

  /** Writes like another client: the next filter contains the key. */
  write(path, title) {
    const version = (this.objects.get(path)?.version ?? 0) + 1;
    this.objects.set(path, { title, version });
    this.stale.add(`${path}#main`);
  }

  fetch = async (url, { method = "GET", headers, body, cache, signal }) => {
    this.requests.push({ url, method, headers, cache });
    let abort;
    const aborted = new Promise((_, reject) => (abort = () => reject(signal.reason)));
    signal.addEventListener("abort", abort);
    return Promise.race([aborted, this.#answer(url, method, headers, body)]).finally(() =>
      signal.removeEventListener("abort", abort),
    );
  };

  async #answer(url, method, headers, body) {
    await this.#pass(url, "arrived");
    const answer = url.endsWith("/sketch")
      ? this.#filter(headers)
      : method === "GET"
        ? this.#read(url, headers)
        : this.#write(url, method, headers, body);
    await this.#pass(url, "read");
    return answer;
  }

  #filter(headers) {
    const status = this.filterStatus;
    if (status !== 200) return new Response('{"type": "/problems/unavailable"}', { status });
    this.skew += 1e-6; // No two filters have the same microsecond.
    const timeUs = START_US + Math.round((this.time + this.skew) * 1e6);
    const etag = `"${this.generation}-${[...this.stale]}-${JSON.stringify(this.groups)}"`;
    const fields = { etag, "portolan-sketch-time": timeUs, "cache-control": "no-store", ...this.extraHeaders };
    if (headers["If-None-Match"] === etag) return new Response(null, { status: 304, headers: fields });
    return new Response(this.damage(this.#encodeFilter(timeUs)), { headers: fields });
  }

  #encodeFilter(timeUs) {
    const map = new TextEncoder().encode(JSON.stringify(this.groups));
    const { m, k, seed } = SHAPE;
    const raw = new Uint8Array(56 + map.length + m / 8 + 4);
    const view = new DataView(raw.buffer);
    raw.set([0x50, 0x74, 0x53, 0x6b, 1, 1, k, this.flags]);
    view.setUint32(8, seed);
    view.setUint32(12, m);
    view.setBigUint64(16, BigInt(timeUs));
    view.setUint32(24, this.validForMs);
    raw[43] = this.generation;
    view.setUint32(52, map.length);
    raw.set(map, 56);
    for (const key of this.stale)
      for (const bit of positions(key, SHAPE)) raw[56 + map.length + (bit >> 3)] |= 0x80 >> (bit & 7);
    view.setUint32(raw.length - 4, crc32(raw.subarray(0, -4)));
    return raw;
  }

  #read(url, headers) {
    const [address, query = ""] = url.split("/v1/news/")[1].split("?");
    const path = decodeURIComponent(address);
    const object = path.includes("/") ? this.objects.get(path) : this.#list(path, new URLSearchParams(query));
    const fields = { ...this.extraHeaders };
    if (this.ttl && !this.pending.has(path)) {
      fields["portolan-expires"] = START_US + Math.round((this.time + this.ttl) * 1e6);
      fields["cache-control"] ??= `public, max-age=0, s-maxage=${this.ttl}, must-revalidate`;
    } else fields["cache-control"] = "no-store";
    if (this.failure) return new Response(this.failure.body, { status: this.failure.status, headers: fields });
    if (!object)
      return new Response('{"type": "/problems/not-found", "detail": "none"}', { status: 404, headers: fields });
    fields.etag = object.etag ?? tagOf(object);
    if (headers["If-None-Match"] === fields.etag) return new Response(null, { status: 304, headers: fields });
    return new Response(JSON.stringify(object.items ? object : bodyOf(object)), { headers: fields });
  }

  /** The result of a query by title: objects, or ids. */
  #list(name, parameters) {
    const items = [...this.objects]
      .filter(([path, { title }]) => path.startsWith(`${name}/`) && [null, title].includes(parameters.get("title")))
      .map(([path, { title }]) => ({ id: path.split("/")[1], ...(parameters.get("fields") !== "id" && { title }) }));
    return { items, next: null, etag: `"${crc32(Buffer.from(JSON.stringify(items)))}"` };
  }

  #write(url, method, headers, body) {
    if (url.endsWith("/transactions")) return this.#transact(JSON.parse(body));
    const path = decodeURIComponent(url.split("/v1/news/")[1].split("?")[0]);
    if (headers["If-Match"] && headers["If-Match"] !== tagOf(this.objects.get(path)))
      return new Response('{"type": "/problems/precondition-failed"}', { status: 412 });
    this.write(path, JSON.parse(body ?? "{}").title);
    const object = this.objects.get(path), fields = { etag: tagOf(object), "portolan-position": "p1" };
    if (!body) return new Response(null, { status: 204, headers: fields });
    const hasObject = this.returnsObject && headers.Prefer === "return=representation";
    if (hasObject) fields["preference-applied"] = headers.Prefer;
    return new Response(hasObject ? JSON.stringify(bodyOf(object)) : body, { headers: fields });
  }

  /** Applies all operations, if no read object has changed. */
  #transact({ reads, operations }) {
    const tag = (path) => (this.objects.has(path) ? tagOf(this.objects.get(path)) : null);
    const changed = reads.filter((read) => tag(`${read.class}/${read.id}`) !== read.etag);
    if (changed.length)
      return Response.json({ type: "/problems/transaction-aborted", changed }, { status: 409 });
    for (const { op, id, body, ...operation } of operations) {
      if (op === "delete") this.objects.delete(`${operation.class}/${id}`);
      else this.write(`${operation.class}/${id}`, body.title);
    }
    return Response.json({ results: [] });
  }
}

const tagOf = (object) => `"j1.main:${object?.version}"`;
const bodyOf = ({ title }) => ({ title });

export function crc32(bytes) {
  const table = Array.from({ length: 256 }, (_, n) => {
    for (let i = 0; i < 8; i++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
    return n;
  });
  let crc = -1;
  for (const byte of bytes) crc = (crc >>> 8) ^ table[(crc ^ byte) & 255];
  return ~crc >>> 0;
}
