// Reads and writes one database.
import { Connection, jsonOf } from "./connection.js";
import { follow } from "./feed.js";
import { Problem } from "./problems.js";
import {
  conditions,
  fieldNames,
  idList,
  pathOf,
  pinnedHeaders,
  preferences,
  withParameters,
  writeHeaders,
} from "./requests.js";

const UPDATE = "application/vnd.portolan.update+json";
const MOST_PROBLEMS = 100;

export class Client {
  #connection;

  constructor(baseUrl, database, options = {}) {
    const url = `${baseUrl.replace(/\/+$/, "")}/v1/${pathOf(database)}/`;
    this.#connection = new Connection(url, { ...options, headers: pinnedHeaders(options) });
  }

  async get(className, id, { fields, freshness, known } = {}) {
    const names = fields && [...fields];
    const path = resource(className, id, names);
    // Tags are of groups: other fields of them, or another object, may have the same one.
    if (known && resource(known.class, known.id, known.fields) !== path)
      throw new RangeError("known is a read of something else");
    const headers = preferences(freshness);
    if (known?.etag) headers["if-none-match"] = known.etag;
    const reply = await this.#connection.send("GET", path, { headers });
    if (reply.status === 304) return known;
    const of = { class: className, id, fields: names };
    return { ...of, value: jsonOf(reply), etag: reply.headers.get("etag"), partial: groupsBehind(reply) };
  }

  async getMany(className, ids, { fields, freshness } = {}) {
    const path = withParameters(pathOf(className), { ids: idList(ids), fields: fieldNames(fields) });
    return jsonOf(await this.#connection.send("GET", path, { headers: preferences(freshness) }));
  }

  put(className, id, value, { fields, ...how } = {}) {
    return this.#write("PUT", resource(className, id, fields), value, how);
  }

  create(className, value, how) {
    return this.#write("POST", pathOf(className), value, how);
  }

  patch(className, id, changes, { upsert, ...how } = {}) {
    return this.#write("PATCH", patched(className, id, upsert), changes, how);
  }

  update(className, id, operators, { upsert, ...how } = {}) {
    return this.#write("PATCH", patched(className, id, upsert), operators, how, UPDATE);
  }

  patchBy(className, key, changes, how) {
    return this.#write("PATCH", keyed(className, key), changes, how);
  }

  updateBy(className, key, operators, how) {
    return this.#write("PATCH", keyed(className, key), operators, how, UPDATE);
  }

  delete(className, id, { fields, ...how } = {}) {
    return this.#write("DELETE", resource(className, id, fields), undefined, how);
  }

  patchWhere(className, where, changes, how) {
    return this.#writeAll("PATCH", className, where, how, changes);
  }

  updateWhere(className, where, operators, how) {
    return this.#writeAll("PATCH", className, where, how, operators, UPDATE);
  }

  deleteWhere(className, where, how) {
    return this.#writeAll("DELETE", className, where, how);
  }

  async query(className, query = {}, { freshness } = {}) {
    const how = { headers: preferences(freshness), body: query };
    return jsonOf(await this.#connection.send("POST", `${pathOf(className)}/query`, how));
  }

  async *iterate(className, query = {}, how = {}) {
    let after = query.after;
    do {
      const page = await this.query(className, after ? { ...query, after } : query, how);
      yield* page.items;
      after = page.next;
    } while (after);
  }

  async batch(operations, how) {
    const sent = { headers: writeHeaders(how), body: { operations } };
    return jsonOf(await this.#connection.send("POST", "batch", sent)).map(withProblem);
  }

  async commit(operations, { reads = [], ...how } = {}) {
    const sent = { headers: writeHeaders(how), body: { reads, operations } };
    return jsonOf(await this.#connection.send("POST", "transactions", sent)).results;
  }

  changes(options) {
    return follow(this.#connection, options);
  }

  async #write(method, path, body, how, type) {
    const reply = await this.#connection.send(method, path, { headers: writeHeaders(how), body, type });
    return {
      value: reply.text === "" ? null : jsonOf(reply),
      etag: reply.headers.get("etag"),
      position: reply.headers.get("portolan-position"),
      replayed: reply.headers.get("idempotency-replayed") === "true",
      partial: groupsBehind(reply),
    };
  }

  /** Each request goes on where the one before ended; by their key no object is written twice. */
  async #writeAll(method, className, where, { allowScan, dryRun, idempotencyKey } = {}, body, type) {
    const sent = { headers: writeHeaders({ idempotencyKey }), body, type };
    const parameters = conditions(where, { allow_scan: allowScan, dry_run: dryRun });
    let summary = { matched: 0, written: 0, failed: 0, sample: [], problems: [] };
    let after;
    do {
      const path = withParameters(pathOf(className), { ...parameters, after });
      const { next, ...part } = jsonOf(await this.#connection.send(method, path, sent));
      summary = united(summary, part);
      after = next ?? undefined;
    } while (after !== undefined);
    return summary;
  }
}

/** Returns the summary of both parts of a write by conditions. */
function united(summary, { matched, written, failed, sample, problems }) {
  return {
    matched: summary.matched + matched,
    written: summary.written + written,
    failed: summary.failed + failed,
    sample: summary.sample.length > 0 ? summary.sample : sample,
    problems: [...summary.problems, ...problems].slice(0, MOST_PROBLEMS),
  };
}

function patched(className, id, upsert) {
  return withParameters(pathOf(className, id), { upsert: upsert ? "true" : undefined });
}

function keyed(className, key) {
  const equal = Object.entries(key).map((pair) => ({ eq: pair }));
  return withParameters(pathOf(className), conditions({ and: equal }, { upsert: true }));
}

function resource(className, id, fields) {
  return withParameters(pathOf(className, id), { fields: fieldNames(fields) });
}

/** Returns the cache groups that a write over several systems has not reached yet. */
function groupsBehind(reply) {
  const listed = reply.headers.get("portolan-partial") ?? "";
  return listed.split(",").map((name) => name.trim()).filter((name) => name !== "");
}

function withProblem(result) {
  return result.problem ? { ...result, problem: new Problem(result.status, result.problem) } : result;
}
