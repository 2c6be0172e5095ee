// Transactions for portolan.mjs: cached reads, checked at the commit. See docs/transactions.md. Apache-2.0.
import { PortolanError } from "./portolan.mjs";

const LONGEST_PAUSE_MS = 200;

/** One attempt: what it reads is noted, what it writes is sent at its end. */
class Transaction {
  #client;
  #reads = new Map();
  #operations = new Map();
  #over = false;

  constructor(client) {
    this.#client = client;
  }

  /**
   * Reads an object, from a cache if the bound allows it; the commit rests on what it says.
   * @param {string} name the class @param {string} id
   * @param {{fields?: string[], missingOk?: boolean}} [how]
   */
  async get(name, id, { fields, missingOk } = {}) {
    this.#check();
    if (this.#operations.has(`${name}/${id}`)) throw new RangeError(`${name}/${id} is read after it was written`);
    const key = JSON.stringify([name, id, fields && [...new Set(fields)].sort()]);
    const found = this.#reads.get(key)?.read ?? (await this.#client.get(name, id, { fields, missingOk: true }));
    if (found.value && !found.etag) throw new PortolanError(0, { detail: "an answer without a tag to compare" });
    if (!this.#reads.has(key)) this.#reads.set(key, { name, id, read: found });
    const { read } = this.#reads.get(key);
    if (!read.value && !missingOk)
      throw new PortolanError(404, { type: "/problems/not-found", detail: `${name}/${id} does not exist.` });
    return { ...read, value: structuredClone(read.value) };
  }

  put = (name, id, body) => this.#add("put", name, id, body);
  /** A Merge Patch. */
  patch = (name, id, body) => this.#add("patch", name, id, body);
  /** Operators. */
  update = (name, id, body) => this.#add("update", name, id, body);
  delete = (name, id) => this.#add("delete", name, id);

  async commit() {
    this.#check();
    this.#over = true;
    // A proxy that compresses makes a tag weak, but it names the same.
    const reads = [...this.#reads.values()].map(({ name, id, read }) => ({
      class: name, id, etag: read.value ? read.etag.replace(/^W\//, "") : null,
    }));
    const operations = [...this.#operations.values()];
    if (!reads.length && !operations.length) return;
    const touches = [...this.#operations].flatMap(([path, operation]) => [`${path}#`, operation.class]);
    try {
      await this.#client.post("transactions", { reads, operations }, { touches });
    } catch (error) {
      // These copies are as stale as those of own writes.
      for (const each of error.problem?.changed ?? []) this.#client.doubt(each.class, each.id);
      throw error;
    }
  }

  #add(op, name, id, body) {
    this.#check();
    const path = `${name}/${id}`;
    if (this.#operations.has(path)) throw new RangeError(`${path} is written twice`);
    this.#operations.set(path, { op, class: name, id, body });
  }

  #check() {
    if (this.#over) throw new RangeError("the transaction is over");
  }
}

/**
 * Does some work in a transaction, and again if it is aborted, a moment later.
 * What the work has read in vain is read from the origin the next time.
 * @template T
 * @param {object} client from `connect`
 * @param {(transaction: Transaction) => Promise<T>} work may be called several times
 * @param {{attempts?: number, sleep?: (ms: number) => Promise<any>}} [options]
 * @returns {Promise<T>} what the work has returned
 */
export async function transact(client, work, options = {}) {
  const { attempts = 10, sleep = (ms) => new Promise((wake) => setTimeout(wake, ms)) } = options;
  for (let attempt = 1, pause = 5; ; attempt++, pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
    const transaction = new Transaction(client);
    const result = await work(transaction);
    try {
      await transaction.commit();
      return result;
    } catch (error) {
      if (error.kind !== "transaction-aborted" || attempt >= attempts) throw error;
    }
    await sleep(pause * Math.random());
  }
}
