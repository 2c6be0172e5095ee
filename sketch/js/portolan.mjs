// Coherent caching for browsers and Node 20: docs/caching-clients.md, portolan.d.mts. Apache-2.0.
const { imul, max, min } = Math, C = [0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93];
const D = [0x561ccd1b, 0x0bcaa747, 0x96cd1c35, 0x32ac3b17];
const turn = (x, n) => (x << n) | (x >>> (32 - n));
const scramble = (x) => {
  x = imul(x ^ (x >>> 16), 0x85ebca6b);
  x = imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
};

const mix = ([a, b, c, d]) => [(a += b + c + d), a + b, a + c, a + d];

export function positions(key, { m, k, seed }) {
  // MurmurHash3 x86 128.
  const bytes = new TextEncoder().encode(key), { length } = bytes, padded = new Uint8Array((length + 15) & ~15);
  padded.set(bytes);
  const view = new DataView(padded.buffer), h = [seed, seed, seed, seed];
  for (let at = 0; at < padded.length; at += 16)
    for (let i = 0; i < 4; i++) {
      const word = imul(view.getUint32(at + 4 * i, true), C[i]);
      h[i] ^= imul(turn(word, 15 + i), C[(i + 1) & 3]);
      if (at + 16 <= length) h[i] = imul(turn(h[i], 19 - 2 * i) + h[(i + 1) & 3], 5) + D[i];
    }
  const [a, b] = mix(mix(h.map((x) => x ^ length)).map(scramble));
  const at = (i) => (a + i * ((b >>> 1) | 0x40000001)) >>> 0;
  return Array.from({ length: k }, (_, i) => Number((BigInt(at(i)) * BigInt(m)) >> 32n));
}

export function readFilter(raw) {
  const all = new Uint8Array(raw), v = new DataView(raw), end = raw.byteLength - 4;
  let crc = -1;
  for (const byte of all.subarray(0, end)) {
    crc ^= byte;
    for (let i = 8; i--; ) crc = (crc >>> 1) ^ (crc & 1 && 0xedb88320);
  }
  const start = 56 + v.getUint32(52), k = all[6], m = v.getUint32(12);
  const known = v.getUint32(0) === 0x5074536b && v.getUint16(4) === 0x101;
  if (!known || ~crc >>> 0 !== v.getUint32(end) || !k || k > 32 || !m || start + m / 8 !== end)
    throw failed("a broken filter");
  const f = {
    m, k, seed: v.getUint32(8), timeUs: Number(v.getBigUint64(16)), validForS: v.getUint32(24) / 1e3,
    incarnation: String(all.subarray(28, 44)), map: new TextDecoder().decode(all.subarray(56, start)),
  };
  f.groups = JSON.parse(f.map);
  f.has = (key) =>
    all[7] & 1 || positions(key, f).every((n) => all[start + (n >> 3)] & (0x80 >> (n & 7)));
  return f;
}

export class PortolanError extends Error {
  constructor(status, problem, cause) {
    super(problem.detail ?? `status ${status}`, { cause });
    Object.assign(this, { status, problem, kind: `${problem.type ?? ""}`.split("/").pop() });
  }
}

const WHOLE = "return=representation", YOUNG = 1; // The end of what is shown only while it is young.
const failed = (detail, cause) => new PortolanError(0, { detail }, cause);
const refused = ({ status, body }) => {
  let problem;
  try {
    problem = JSON.parse(body);
  } catch {} // Not JSON.
  return new PortolanError(status, Object(problem));
};
const natural = (text) => (/^\d+$/.test(text) ? +text : 0);
const defined = (o) => Object.fromEntries(Object.entries(o).filter(([, v]) => v != null));
const segment = (s) => {
  if (/^\.{0,2}$/.test(s)) throw new RangeError(`"${s}" cannot be part of an address`);
  return /^(query|import|export)$/.test(s) ? `%${s.charCodeAt().toString(16)}${s.slice(1)}` : encodeURIComponent(s);
};
const canonical = (fields) => [...new Set(fields)].sort();
const address = (name, id, fields) =>
  `${segment(name)}/${segment(id)}${fields ? `?fields=${canonical(fields).map(encodeURIComponent)}` : ""}`;

const sorted = (_, v) => (v?.constructor === Object ? Object.fromEntries(Object.entries(v).sort()) : v);
const text = (v) => {
  if (Array.isArray(v)) return v.map((each) => text(each).replace(/[%,]/g, encodeURIComponent)).join();
  return typeof v === "string" ? v : JSON.stringify(v, sorted);
};
const escaped = (v) => encodeURIComponent(text(v)).replaceAll("%2C", ",");

export const spell = ({ fields, ...asked }) => {
  if (fields) asked.fields = fields.map ? canonical(fields) : fields;
  return Object.entries(asked).map((pair) => pair.map(escaped).join("=")).sort().join("&");
};

/** The groups of these fields, or all; none if one is unknown. */
const shown = (groups = {}, names) => {
  const all = Object.keys(groups), has = (name) => all.filter((group) => groups[group].includes(name));
  return !names ? all : names.every((name) => has(name)[0]) ? [...new Set(names.flatMap(has))] : [];
};

/** Whether tags tell that one is no older than the other: versions only grow. */
const covers = (one, other) => {
  if (one.etag === other.etag) return one.etag || one.body === other.body;
  const [a, b] = [one, other].map(({ etag }) => /"j.*/.exec(etag)?.[0].split(/:(\d+)/));
  return b && a?.every((part, i) => (i % 2 ? BigInt(part) >= BigInt(b[i]) : part === b[i]));
};

// One clock may stand still in sleep.
let lead = 0;
const elapsed = () => {
  const now = performance.now() / 1e3;
  return now + (lead = max(lead, Date.now() / 1e3 - now));
};

export async function connect(url, database, options = {}) {
  const {
    deltaS = 1, mode = "eager", headers: always, cacheBytes = 2 ** 24, clock = elapsed, fetch = globalThis.fetch,
    sleep = (s) => new Promise((wake) => setTimeout(wake, s * 1e3).unref?.()),
  } = options;
  if (!(deltaS > 0)) throw new RangeError("deltaS must be positive");
  const base = `${url.replace(/\/$/, "")}/v1/${segment(database)}/`, ending = new AbortController(), { signal } = ending;
  const copies = new Map(), flights = new Map(), writes = new Map(), onSystems = new Set();
  const stats = { hits: 0, joined: 0, fetches: 0, revalidations: 0, filters: 0, failures: 0, bytes: 0 };
  let filter, last, renewing, bound = deltaS, wanted = 0, tick = 0, retry = 0, epoch = 0, size = 0;

  /** Never the same time twice. */
  const now = () => (tick = max(clock(), tick * (1 + 2 ** -52)));

  async function send(path, headers, init) {
    try {
      const r = await fetch(base + path, { cache: "no-store", ...init, headers: defined({ ...always, ...headers }), signal });
      const raw = await r.arrayBuffer(), told = (name) => r.headers.get(name) ?? "", age = told("age");
      const noStore = /\bno-store\b/i.test(told("cache-control")), seconds = /\D/.test(age) ? Infinity : +age;
      stats.bytes += raw.byteLength;
      return {
        told, noStore, raw, status: r.status, etag: r.headers.get("etag"), body: new TextDecoder().decode(raw),
        // Proxies add `Via` and `Age: 0`; `no-store` was in no cache.
        laid: seconds || (!noStore && (age || told("via"))) ? seconds + 1 : 0,
        // The service's hits are its own word.
        source: seconds || told("cache-status").split(",").some((c) => /^(?!\s*portolan\s*;).*;\s*hit\s*(;|$)/i.test(c))
          ? "shared" : "origin",
      };
    } catch (cause) {
      throw failed(`no answer: ${cause}`, cause);
    }
  }

  async function load(sent) {
    const held = filter;
    try {
      const r = await send("sketch", { Accept: "application/vnd.portolan.sketch", "If-None-Match": held?.etag });
      const timeUs = natural(r.told("portolan-sketch-time")), found = r.status === 200;
      if (!found && !(r.status === 304 && held && timeUs)) throw refused(r);
      adopt({ ...(found ? received(r) : { ...held, timeUs }), born: sent - r.laid });
      stats.filters++;
    } catch (error) {
      stats.failures++;
      retry = sent + deltaS / 2;
      throw error;
    }
  }

  function received({ raw, etag }) {
    try {
      return { ...readFilter(raw), etag };
    } catch (cause) {
      filter = null; // What is wrong is not known.
      throw failed("a broken filter", cause);
    }
  }

  function adopt(next) {
    const same = last?.incarnation === next.incarnation;
    if (same && next.timeUs < last.timeUs) throw failed("an older filter");
    if (last && !(same && last.map === next.map)) {
      epoch++; // Copies are covered no more,
      if (writes.size) writes.set("*", now()); // and keys are others.
    }
    filter = last = next;
    bound = min(deltaS, next.validForS);
    // A copy from before may still be young.
    for (const [key, at] of writes) if (at < next.born - deltaS) writes.delete(key);
  }

  /** Answers when to do so again. */
  async function renew() {
    const sent = now();
    try {
      await load(sent);
    } catch {
      return deltaS / 2;
    }
    const took = now() - sent;
    return max(deltaS / 2, 0.9 * deltaS - 2 * took) - took;
  }

  /** `keysOf` tells the keys; own writes name `above`, too. */
  function read(name, path, refresh, keysOf, above) {
    const asked = now(), copy = copies.get(path), f = filter && asked - filter.born <= bound && filter;
    if (!f && asked >= retry) renewing ??= renew().finally(() => (renewing = null));
    const keys = last?.groups[name] ? keysOf(last.groups[name]) : [], known = keys.length && !refresh;
    const own = max(...["*", above, ...keys].map((key) => writes.get(key) ?? -1));
    // What was not outdated then is within the bound.
    const fresh = known ? max(asked - bound, wanted) : asked, young = copy?.since > fresh;
    const alive = filter && filter.timeUs + (asked - filter.born) * 1e6 < copy?.end;
    let floor = max(own, fresh), covered;
    if (f && known && !keys.some(f.has)) {
      // Caches may hold what is older than what came since.
      covered = (copy?.epoch ?? epoch) === epoch && (alive || !(copy?.came > f.born));
      floor = max(own, f.born);
    }
    if (copy?.knows > own && (young ? alive || copy.end === YOUNG : covered && alive)) {
      stats.hits++;
      copies.delete(path);
      copies.set(path, copy);
      return { ...copy, source: "own" };
    }
    // By any cache, or the origin after the floor.
    const plain = covered && own < f.born && f, flight = flights.get(path);
    if (flight?.f ? flight.f === plain : flight?.sent > max(floor, copy?.came ?? 0)) {
      stats.joined++;
      return flight.answer;
    }
    const mine = { sent: now(), f: plain };
    flights.set(path, mine);
    return (mine.answer = answerOf(name, path, mine, copy).finally(() => {
      if (flights.get(path) === mine) flights.delete(path);
    }));
  }

  async function answerOf(name, path, { f, sent }, copy) {
    stats[f ? "fetches" : "revalidations"]++;
    const started = epoch;
    // With our condition a plain request would ask the origin.
    const headers = f ? {} : { "Cache-Control": "no-cache", "If-None-Match": copy?.body && copy.etag };
    const ask = async () => {
      const Prefer = onSystems.has(name) ? "consistency=strong" : null;
      const r = await send(path, { ...headers, Prefer }, f && { cache: "default" });
      if (Prefer || !r.told("portolan-staleness")) return r;
      onSystems.add(name); // A view's age is bounded by the schema alone.
      return ask();
    };
    const r = await ask(), held = r.status === 304 && copy;
    const since = f ? f.born : r.source === "origin" ? sent : sent - (r.told("age") ? r.laid : Infinity);
    const end = r.noStore ? (held.end ? YOUNG : 0) : natural(r.told("portolan-expires"));
    const news = { ...(held || content(r)), source: r.source, epoch: started, since, knows: since, end };
    keep(path, r.noStore && !held ? { ...news, body: null } : news);
    return news;
  }

  async function atLeast(path, position) {
    const Prefer = `at-least=${position}, max-staleness=${deltaS.toFixed(6)}`;
    stats.revalidations++;
    return content(await send(path, { "Cache-Control": "no-cache", Prefer }));
  }

  function content(r) {
    if (r.status !== 200 && r.status !== 404) throw refused(r);
    return { status: r.status, etag: r.etag, body: r.body, source: r.source };
  }

  function keep(path, copy) {
    const old = copies.get(path);
    if (copy.since < old?.came) {
      // If tags do not tell the newer one, neither is shown again.
      const [a, b] = copy.end < old.end ? [old, copy] : [copy, old];
      const newer = covers(a, b) ? a : covers(b, a) ? b : { ...copy, etag: null, body: null, end: 0 };
      copy = { ...newer, since: max(old.since, copy.since), knows: max(old.knows, copy.knows) };
    }
    copy = { ...copy, came: now(), size: 200 + 2 * (path + copy.body).length };
    size += copy.size - (old?.size ?? 0);
    copies.delete(path);
    copies.set(path, copy);
    for (const [first, its] of copies)
      if (size > cacheBytes && copies.delete(first)) size -= its.size;
  }

  async function write(method, name, ids, path, { ifMatch, idempotencyKey, touches }, more, value, touched) {
    const headers = { "Content-Type": value && "application/json", "If-Match": ifMatch, "Idempotency-Key": idempotencyKey, ...more };
    let r, since = now();
    try {
      r = await send(path, headers, { method, body: JSON.stringify(value) });
    } finally {
      const groups = shown(last?.groups[name], touched), all = groups[0] ? groups : [""];
      const keys = touches ?? [name, ...ids.flatMap((id) => all.map((group) => `${name}/${id}#${group}`))];
      for (const key of writes.size > 1e4 ? ["*"] : keys) writes.set(key, now()); // Too many.
    }
    if (r.status >= 400) throw refused(r);
    const { told, etag, body } = r, result = { value: body ? JSON.parse(body) : null, etag, position: told("portolan-position"), location: told("location") };
    if (more?.Prefer && told("preference-applied").includes(WHOLE) && etag && last?.groups[name])
      keep(path, { status: 200, etag, body, since, knows: now(), end: YOUNG, epoch });
    return result;
  }

  const client = {
    stats,

    async get(name, id, how = {}) {
      const { fields } = how, path = address(name, id, fields), all = `${name}/${id}#`;
      const keys = (groups) => shown(groups, fields).map((group) => all + group);
      const a = await (how.atLeast ? atLeast(path, how.atLeast) : read(name, path, how.refresh, keys, all));
      const found = a.status === 200;
      if (!found && !how.missingOk) throw refused(a);
      return { value: found ? JSON.parse(a.body) : null, etag: found ? a.etag : null, source: a.source };
    },

    async query(name, parameters = {}, { oneByOne, refresh } = {}) {
      const { fields } = parameters, asked = spell(oneByOne ? { ...parameters, fields: "id" } : parameters);
      const path = segment(name) + (asked && `?${asked}`);
      const a = await read(name, path, refresh, () => [`${name}//${asked}`], name);
      if (a.status !== 200) throw refused(a);
      const result = { ...JSON.parse(a.body), source: a.source }, how = { fields, refresh, missingOk: true };
      if (!oneByOne) return result;
      const found = await Promise.all(result.items.map(({ id }) => client.get(name, id, how)));
      return { ...result, items: found.flatMap(({ value }) => value ?? []) };
    },

    async put(name, id, value, how = {}) {
      const { fields } = how, path = address(name, id, fields);
      return write("PUT", name, [id], path, how, { Prefer: WHOLE, "If-None-Match": how.createOnly ? "*" : null }, value, fields);
    },

    async patch(name, id, changes, { form = "merge", ...how } = {}) {
      const kind = form === "update" ? "vnd.portolan.update" : `${form}-patch`;
      const more = { Prefer: WHOLE, "Content-Type": `application/${kind}+json` };
      return write("PATCH", name, [id], address(name, id), how, more, changes, form === "json" ? null : Object.keys(changes));
    },

    async delete(name, id, how = {}) {
      return write("DELETE", name, [id], address(name, id), how);
    },

    async post(name, value, how = {}) {
      return write("POST", name, [value].flat().map((each) => each.id), segment(name), how, {}, value);
    },

    async refreshFilter() {
      const sent = now();
      await load(sent);
      wanted = max(wanted, sent);
    },

    doubt: (name, id) => [name, `${name}/${id}#`].map((key) => writes.set(key, now())),

    close: () => ending.abort(),
  };
  const loop = async () => {
    const pause = await renew();
    if (mode === "eager") sleep(pause).then(() => signal.aborted || loop());
  };
  await loop();
  return client;
}
