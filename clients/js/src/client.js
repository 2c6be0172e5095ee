// The client of one database.
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
const MAX_PROBLEMS = 100;

export class Client {
  #connection;

  constructor(baseUrl, database, options = {}) {
    const url = `${baseUrl.replace(/\/+$/, "")}/v1/${pathOf(database)}/`;
    this.#connection = new Connection(url, { ...options, headers: pinnedHeaders(options) });
  }

  async get(className, id, { fields, freshness, known } = {}) {
    const names = fields && [...fields];
    const path = resourcePath(className, id, names);
    // An entity tag names the versions of cache groups: other fields, or another object, can have the same tag.
    if (known && resourcePath(known.class, known.id, known.fields) !== path)
      throw new RangeError("known is a read of something else");
    const headers = preferences(freshness);
    if (known?.etag) headers["if-none-match"] = known.etag;
    const reply = await this.#connection.send("GET", path, { headers });
    if (reply.status === 304) return known;
    const selector = { class: className, id, fields: names };
    return { ...selector, value: jsonOf(reply), etag: reply.headers.get("etag"), partial: pendingGroups(reply) };
  }

  async getMany(className, ids, { fields, freshness } = {}) {
    const path = withParameters(pathOf(className), { ids: idList(ids), fields: fieldNames(fields) });
    return jsonOf(await this.#connection.send("GET", path, { headers: preferences(freshness) }));
  }

  put(className, id, value, { fields, ...how } = {}) {
    return this.#write("PUT", resourcePath(className, id, fields), value, how);
  }

  create(className, value, how) {
    return this.#write("POST", pathOf(className), value, how);
  }

  patch(className, id, changes, { upsert, ...how } = {}) {
    return this.#write("PATCH", patchPath(className, id, upsert), changes, how);
  }

  update(className, id, operators, { upsert, ...how } = {}) {
    return this.#write("PATCH", patchPath(className, id, upsert), operators, how, UPDATE);
  }

  patchBy(className, key, changes, how) {
    return this.#write("PATCH", uniqueKeyPath(className, key), changes, how);
  }

  updateBy(className, key, operators, how) {
    return this.#write("PATCH", uniqueKeyPath(className, key), operators, how, UPDATE);
  }

  delete(className, id, { fields, ...how } = {}) {
    return this.#write("DELETE", resourcePath(className, id, fields), undefined, how);
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
    const request = { headers: preferences(freshness), body: query };
    return jsonOf(await this.#connection.send("POST", `${pathOf(className)}/query`, request));
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
    const request = { headers: writeHeaders(how), body: { operations } };
    return jsonOf(await this.#connection.send("POST", "batch", request)).map(withProblem);
  }

  async commit(operations, { reads = [], ...how } = {}) {
    const request = { headers: writeHeaders(how), body: { reads, operations } };
    return jsonOf(await this.#connection.send("POST", "transactions", request)).results;
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
      partial: pendingGroups(reply),
    };
  }

  /** Each request continues where the previous one ended; their common key prevents duplicate writes. */
  async #writeAll(method, className, where, { allowScan, dryRun, idempotencyKey } = {}, body, type) {
    const request = { headers: writeHeaders({ idempotencyKey }), body, type };
    const parameters = conditions(where, { allow_scan: allowScan, dry_run: dryRun });
    let summary = { matched: 0, written: 0, failed: 0, sample: [], problems: [] };
    let after;
    do {
      const path = withParameters(pathOf(className), { ...parameters, after });
      const { next, ...partial } = jsonOf(await this.#connection.send(method, path, request));
      summary = merge(summary, partial);
      after = next ?? undefined;
    } while (after !== undefined);
    return summary;
  }
}

/** Merges the summaries of two requests of a write by conditions. */
function merge(summary, { matched, written, failed, sample, problems }) {
  return {
    matched: summary.matched + matched,
    written: summary.written + written,
    failed: summary.failed + failed,
    sample: summary.sample.length > 0 ? summary.sample : sample,
    problems: [...summary.problems, ...problems].slice(0, MAX_PROBLEMS),
  };
}

function patchPath(className, id, upsert) {
  return withParameters(pathOf(className, id), { upsert: upsert ? "true" : undefined });
}

function uniqueKeyPath(className, key) {
  const conjuncts = Object.entries(key).map((pair) => ({ eq: pair }));
  return withParameters(pathOf(className), conditions({ and: conjuncts }, { upsert: true }));
}

function resourcePath(className, id, fields) {
  return withParameters(pathOf(className, id), { fields: fieldNames(fields) });
}

/** Returns the cache groups that a write to several systems has not reached yet. */
function pendingGroups(reply) {
  const groups = reply.headers.get("portolan-partial") ?? "";
  return groups.split(",").map((name) => name.trim()).filter((name) => name !== "");
}

function withProblem(result) {
  return result.problem ? { ...result, problem: new Problem(result.status, result.problem) } : result;
}
