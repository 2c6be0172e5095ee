// Transactions for portolan.mjs: cached reads, checked at the commit. See docs/transactions.md. Apache-2.0.
import { PortolanError } from "./portolan.mjs";

const MAX_PAUSE_MS = 200;

/** One attempt: records its reads, and sends its writes at the commit. */
class Transaction {
  #client;
  #reads = new Map();
  #operations = new Map();
  #isOver = false;

  constructor(client) {
    this.#client = client;
  }

  /**
   * Reads an object, from a cache if the bound allows it; the commit validates the read.
   * @param {string} name the class @param {string} id
   * @param {{fields?: string[], missingOk?: boolean}} [how]
   */
  async get(name, id, { fields, missingOk } = {}) {
    this.#check();
    if (this.#operations.has(`${name}/${id}`)) throw new RangeError(`${name}/${id} is read after it was written`);
    const key = JSON.stringify([name, id, fields && [...new Set(fields)].sort()]);
    const result = this.#reads.get(key)?.read ?? (await this.#client.get(name, id, { fields, missingOk: true }));
    if (result.value && !result.etag)
      throw new PortolanError(0, { detail: "a response without an entity tag to compare" });
    if (!this.#reads.has(key)) this.#reads.set(key, { name, id, read: result });
    const { read } = this.#reads.get(key);
    if (!read.value && !missingOk)
      throw new PortolanError(404, { type: "/problems/not-found", detail: `${name}/${id} does not exist.` });
    return { ...read, value: structuredClone(read.value) };
  }

  put = (name, id, body) => this.#add("put", name, id, body);
  /** Takes a merge patch. */
  patch = (name, id, body) => this.#add("patch", name, id, body);
  /** Takes operators. */
  update = (name, id, body) => this.#add("update", name, id, body);
  delete = (name, id) => this.#add("delete", name, id);

  async commit() {
    this.#check();
    this.#isOver = true;
    // A compressing proxy makes a tag weak, but it names the same version.
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
      for (const object of error.problem?.changed ?? []) this.#client.doubt(object.class, object.id);
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
    if (this.#isOver) throw new RangeError("the transaction is over");
  }
}

/**
 * Runs `work` in a transaction; retries it after a short pause if the transaction is aborted.
 * The next attempt reads the objects in conflict from the origin.
 * @template T
 * @param {object} client from `connect`
 * @param {(transaction: Transaction) => Promise<T>} work may be called several times
 * @param {{attempts?: number, sleep?: (ms: number) => Promise<any>}} [options]
 * @returns {Promise<T>} the result of `work`
 */
export async function transact(client, work, options = {}) {
  const { attempts = 10, sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms)) } = options;
  for (let attempt = 1, pause = 5; ; attempt++, pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
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
