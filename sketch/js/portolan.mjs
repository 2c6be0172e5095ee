// Coherent caching for browsers and Node 20: docs/caching-clients.md. Apache-2.0.
// What is exported is described, with its types, in portolan.d.mts.
const { imul, max } = Math, C = [0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93];
const D = [0x561ccd1b, 0x0bcaa747, 0x96cd1c35, 0x32ac3b17];
const turn = (x, n) => (x << n) | (x >>> (32 - n));
const scramble = (x) => {
  x = imul(x ^ (x >>> 16), 0x85ebca6b);
  x = imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
};

/** MurmurHash3 x86 128: four words. */
function hash(bytes, seed) {
  const length = bytes.length, padded = new Uint8Array((length + 15) & ~15);
  padded.set(bytes);
  const view = new DataView(padded.buffer), h = [seed, seed, seed, seed];
  const mix = () => {
    h[0] += h[1] + h[2] + h[3];
    for (const i of [1, 2, 3]) h[i] += h[0];
  };
  for (let at = 0; at < padded.length; at += 16)
    for (let i = 0; i < 4; i++) {
      const k = imul(view.getUint32(at + 4 * i, true), C[i]);
      h[i] ^= imul(turn(k, 15 + i), C[(i + 1) & 3]);
      if (at + 16 <= length) h[i] = imul(turn(h[i], 19 - 2 * i) + h[(i + 1) & 3], 5) + D[i];
    }
  for (let i = 0; i < 4; i++) h[i] ^= length;
  mix();
  for (let i = 0; i < 4; i++) h[i] = scramble(h[i]);
  mix();
  return h;
}

export function positions(key, { m, k, seed }) {
  const [a, b] = hash(new TextEncoder().encode(key), seed);
  const at = (i) => ((a >>> 0) + i * ((b >>> 1) | 0x40000001)) % 2 ** 32;
  return Array.from({ length: k }, (_, i) => Number((BigInt(at(i)) * BigInt(m)) >> 32n));
}

export function readFilter(raw) {
  const v = new DataView(raw), all = new Uint8Array(raw), end = raw.byteLength - 4;
  let crc = -1;
  for (const byte of all.subarray(0, max(end, 0))) {
    crc ^= byte;
    for (let i = 8; i--; ) crc = (crc >>> 1) ^ (crc & 1 && 0xedb88320);
  }
  const start = end < 56 ? 0 : 56 + v.getUint32(52), k = all[6], m = start && v.getUint32(12);
  const known = start && v.getUint32(0) === 0x5074536b && v.getUint16(4) === 0x101;
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

const failed = (detail, cause) => new PortolanError(0, { detail }, cause);
const refused = ({ status, body }) => {
  let problem;
  try {
    problem = JSON.parse(body);
  } catch {} // Whoever is on the way may answer anything.
  return new PortolanError(status, Object(problem));
};
const natural = (text) => (/^\d+$/.test(text) ? +text : 0);
const defined = (o) => Object.fromEntries(Object.entries(o).filter((entry) => entry[1] != null));
const segment = (s) => {
  if (/^\.{0,2}$/.test(s)) throw new RangeError(`"${s}" cannot be part of an address`);
  const route = /^(query|import|export)$/.test(s);
  return route ? `%${s.charCodeAt().toString(16)}${s.slice(1)}` : encodeURIComponent(s);
};
const canonical = (fields) => fields && [...new Set(fields)].sort();
const address = (name, id, names) =>
  `${segment(name)}/${segment(id)}${names ? `?fields=${names.map(encodeURIComponent)}` : ""}`;

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

/** The groups that show these fields, or all; none if some field is not known. */
const shown = (groups = {}, names) => {
  const all = Object.keys(groups), has = (name) => all.filter((group) => groups[group].includes(name));
  if (!names) return all;
  return names.every((name) => has(name)[0]) ? [...new Set(names.flatMap(has))] : [];
};

// What the wall clock gains was slept: the other one may stand still meanwhile.
let lead = -Infinity;
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
  const copies = new Map(), flights = new Map(), own = new Map(), onSystems = new Set();
  const stats = { hits: 0, joined: 0, fetches: 0, revalidations: 0, filters: 0, failures: 0, bytes: 0 };
  let filter, last, renewing, tick = 0, retry = 0, epoch = 0, size = 0;

  /** Never the same time twice. */
  const now = () => (tick = max(clock(), tick * (1 + Number.EPSILON)));

  async function send(path, { headers, ...init }) {
    try {
      const r = await fetch(base + path, { ...init, headers: defined({ ...always, ...headers }), signal });
      const raw = await r.arrayBuffer(), age = r.headers.get("age"), told = (name) => r.headers.get(name) ?? "";
      const noStore = /\bno-store\b/i.test(told("cache-control"));
      const seconds = /\D/.test(age ?? "") ? Infinity : natural(age);
      stats.bytes += raw.byteLength;
      return {
        told, noStore, raw, status: r.status, etag: r.headers.get("etag"), body: new TextDecoder().decode(raw),
        // Proxies put `Via` and `Age: 0` on what they pass on: what is `no-store` was in no cache.
        laid: !seconds && (noStore || !(age ?? told("via"))) ? 0 : seconds + 1,
        // A hit of the service itself means that its sketch knew the version.
        source: seconds || told("cache-status").split(",").some((c) => /^(?!\s*portolan\s*;).*;\s*hit\s*(;|$)/i.test(c))
          ? "shared" : "origin",
      };
    } catch (cause) {
      throw failed(`no answer: ${cause}`, cause);
    }
  }

  // The filter, and how old it is at most.

  async function load(sent) {
    const held = filter;
    try {
      const headers = { Accept: "application/vnd.portolan.sketch", "If-None-Match": held?.etag };
      const r = await send("sketch", { headers, cache: "no-store" });
      const timeUs = natural(r.told("portolan-sketch-time")), renewed = r.status === 304 && held && timeUs;
      if (!renewed && r.status !== 200) throw refused(r);
      adopt({ ...(renewed ? { ...held, timeUs } : received(r)), born: sent - r.laid });
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
    } catch (error) {
      filter = null; // What is wrong is not known: everything is revalidated.
      throw error;
    }
  }

  function adopt(next) {
    const same = last && last.incarnation === next.incarnation;
    if (same && next.timeUs < last.timeUs) throw failed("an older filter");
    if (last && !(same && last.map === next.map)) epoch++; // What was kept is covered no more.
    filter = last = next;
    for (const [key, { open, at }] of own) if (!open && at < next.born) own.delete(key);
  }

  /** Answers after which time to do so again. */
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

  // Reads. The floor is the time after which the origin must have been asked; -Infinity: any cache will do.

  const isAlive = (copy, f) => f.timeUs + (now() - f.born) * 1e6 < copy.end && copy.epoch === epoch;

  const written = (key) => own.get(key)?.at ?? -Infinity;

  /** `keysOf` names the keys by the groups of the class; `above` what own writes name beside them. */
  function read(name, path, refresh, keysOf, above) {
    const asked = now(), copy = copies.get(path);
    const f = filter && asked - filter.born <= Math.min(deltaS, filter.validForS) && filter;
    if (!f && !renewing && asked >= retry) renewing = renew().finally(() => (renewing = null));
    const groups = f && !refresh && f.groups[name], keys = groups ? keysOf(groups) : [];
    let floor = asked;
    if (keys.length) {
      floor = max(...["*", above, ...keys].map(written));
      const beyond = copy && (copy.epoch !== epoch || (copy.since > f.born && !isAlive(copy, f)));
      if (beyond || keys.some(f.has)) floor = max(floor, f.born);
    }
    if (f && copy?.since > floor && isAlive(copy, f)) {
      stats.hits++;
      copies.delete(path);
      copies.set(path, copy);
      return { ...copy, source: "own" };
    }
    const any = floor === -Infinity, flight = flights.get(path);
    if (flight && (any && flight.f ? flight.f === f : flight.sent > (any ? f.born : floor))) {
      stats.joined++;
      return flight.answer;
    }
    const mine = { sent: any ? -Infinity : now(), f: any && f };
    flights.set(path, mine);
    return (mine.answer = answerOf(name, path, mine, copy).finally(() => {
      if (flights.get(path) === mine) flights.delete(path);
    }));
  }

  async function answerOf(name, path, { f, sent }, copy) {
    stats[f ? "fetches" : "revalidations"]++;
    const started = epoch;
    // A plain request leaves conditions to the browser's cache: with ours it would ask the origin.
    const r = await ask(name, path, f ? {} : { "Cache-Control": "no-cache", "If-None-Match": copy?.etag });
    const held = r.status === 304 && copy;
    const news = {
      ...(held || content(r)), epoch: started, end: r.noStore ? 0 : natural(r.told("portolan-expires")),
      since: f ? f.born : r.source === "origin" ? sent : sent - (r.laid || Infinity),
    };
    keep(path, r.noStore ? { ...news, body: "", etag: null } : news);
    return { ...news, source: r.source };
  }

  /** Asks the systems, not the primary: what bounds its age is the schema, not this client. */
  async function ask(name, path, headers) {
    const Prefer = onSystems.has(name) ? "consistency=strong" : null;
    const r = await send(path, { headers: { ...headers, Prefer }, cache: headers["Cache-Control"] ? "no-store" : "default" });
    if (Prefer || !r.told("portolan-staleness")) return r;
    onSystems.add(name);
    return ask(name, path, headers);
  }

  async function atLeast(path, position) {
    const Prefer = `at-least=${position}, max-staleness=${deltaS.toFixed(6)}`;
    stats.revalidations++;
    return content(await send(path, { headers: { "Cache-Control": "no-cache", Prefer }, cache: "no-store" }));
  }

  function content(r) {
    if (r.status !== 200 && r.status !== 404) throw refused(r);
    return { status: r.status, etag: r.etag, body: r.body, source: r.source };
  }

  function keep(path, copy) {
    const old = copies.get(path);
    if (old && (old.epoch - copy.epoch || old.since - copy.since) > 0) return; // It was overtaken.
    const drop = (at) => (size -= copies.get(at)?.size ?? 0, copies.delete(at));
    drop(path);
    size += copy.size = 200 + 2 * (path.length + copy.body.length);
    copies.set(path, copy);
    for (const first of copies.keys()) if (size > cacheBytes) drop(first);
  }

  // Writes, remembered until a filter that knows of them is in use.

  async function write(method, name, ids, path, value, touched, { ifMatch, idempotencyKey, touches }, more) {
    const groups = touched && last ? shown(last.groups[name], touched) : [];
    let keys = touches ?? ids.flatMap((id) => (groups.length ? groups : [""]).map((group) => `${name}/${id}#${group}`));
    if (own.size > 1e4) keys = ["*"]; // Too many to be told apart.
    keys = new Set(keys.flatMap((key) => [key, key.split("/")[0]])); // Any write may change what queries find.
    const mark = (by) => {
      for (const key of keys) own.set(key, { open: (own.get(key)?.open ?? 0) + by, at: now() });
    };
    mark(1);
    try {
      const headers = { "Content-Type": value && "application/json", "If-Match": ifMatch, "Idempotency-Key": idempotencyKey, ...more };
      const r = await send(path, { method, headers, body: JSON.stringify(value), cache: "no-store" });
      if (r.status >= 400) throw refused(r);
      const { told, etag, body } = r;
      return { value: body ? JSON.parse(body) : null, etag, position: told("portolan-position"), location: told("location") };
    } finally {
      mark(-1);
    }
  }

  const client = {
    stats,

    async get(name, id, how = {}) {
      const names = canonical(how.fields), path = address(name, id, names), all = `${name}/${id}#`;
      const keys = (groups) => shown(groups, names).map((group) => all + group);
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
      const names = canonical(how.fields), path = address(name, id, names);
      return write("PUT", name, [id], path, value, names, how, { "If-None-Match": how.createOnly && "*" });
    },

    async patch(name, id, changes, { form = "merge", ...how } = {}) {
      const names = form === "json" ? null : Object.keys(changes);
      const kind = { merge: "merge-patch", json: "json-patch", update: "vnd.portolan.update" }[form];
      const type = { "Content-Type": `application/${kind}+json` };
      return write("PATCH", name, [id], address(name, id), changes, names, how, type);
    },

    async delete(name, id, how = {}) {
      return write("DELETE", name, [id], address(name, id), undefined, null, how);
    },

    async post(name, value, how = {}) {
      return write("POST", name, [value].flat().map((each) => each.id), segment(name), value, null, how);
    },

    refreshFilter: () => load(now()),

    doubt: (name, id) => [name, `${name}/${id}#`].map((key) => own.set(key, { open: 0, at: now() })),

    close: () => ending.abort(),
  };
  let pause = await renew();
  const loop = async () => {
    for (await sleep(pause); !signal.aborted; await sleep(pause)) pause = await renew();
  };
  if (mode === "eager") loop();
  return client;
}
