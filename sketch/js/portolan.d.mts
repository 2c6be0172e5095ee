// Types and descriptions of portolan.mjs; see docs/caching-clients.md. Apache-2.0.

/** Who answered: the client's own copy, a cache on the path that reports it, or the origin. */
export type Source = "own" | "shared" | "origin";
export type Read = { value: any; etag: string | null; source: Source };
export type Result = {
  items: any[];
  next: string | null;
  source: Source;
  /** The number of objects on all pages, and how they were counted, if `count` was given. */
  total?: number;
  count?: "exact" | "estimated";
};
export type Written = { value: any; etag: string | null; position: string; location: string };
export type Conditions = { ifMatch?: string; idempotencyKey?: string };

export type Options = {
  /** The bound on staleness, in seconds; 1 by default. */
  deltaS?: number;
  /** `eager` renews the filter in the background, `lazy` when a read needs it. */
  mode?: "eager" | "lazy";
  /** Header fields of every request, such as Authorization. */
  headers?: Record<string, string>;
  /** The memory limit of all copies (bytes). */
  cacheBytes?: number;
  /** For tests. */
  fetch?: typeof fetch;
  /** Returns elapsed seconds, sleep included; for tests. */
  clock?: () => number;
  /** Waits for a number of seconds; for tests. */
  sleep?: (seconds: number) => Promise<any>;
};

export type Client = {
  /** Counts of reads and filters, by how they were served. */
  stats: Record<"hits" | "joined" | "fetches" | "revalidations" | "filters" | "failures" | "bytes", number>;
  get(
    name: string,
    id: string,
    how?: { fields?: string[]; refresh?: boolean; atLeast?: string; missingOk?: boolean },
  ): Promise<Read>;
  /**
   * Queries objects of a class, by the parameters of docs/queries.md. The result includes
   * every write that was acknowledged more than `deltaS` before. With `oneByOne` only the ids are requested, and
   * each object is read, and cached, separately.
   */
  query(
    name: string,
    parameters?: Record<string, any>,
    how?: { oneByOne?: boolean; refresh?: boolean },
  ): Promise<Result>;
  /**
   * Sets an object to a value. If the service answers a write with the whole object, the client stores it, and
   * the next read needs no request.
   */
  put(
    name: string,
    id: string,
    value: object,
    how?: Conditions & { fields?: string[]; createOnly?: boolean },
  ): Promise<Written>;
  patch(
    name: string,
    id: string,
    changes: any,
    how?: Conditions & { form?: "merge" | "json" | "update" },
  ): Promise<Written>;
  delete(name: string, id: string, how?: Conditions): Promise<Written>;
  /** Creates an object, or a list of objects. */
  post(name: string, value: object | object[], how?: Conditions): Promise<Written>;
  /**
   * Fetches a filter generated after this call. Copies that were outdated before the call are no longer used,
   * however young they are.
   */
  refreshFilter(): Promise<void>;
  /** Treats an object as changed: earlier copies are not used. */
  doubt(name: string, id: string): void;
  /** Cancels all requests in flight. */
  close(): void;
};

/**
 * Returns a client of one database, after the first request for a filter.
 * @param url of the service, or of the cache in front of it
 */
export function connect(url: string, database: string, options?: Options): Promise<Client>;

/** An error of the client or of the service. */
export class PortolanError extends Error {
  /** 0: no response, or a broken one. */
  status: number;
  /** See docs/problems.md. */
  kind: string;
  problem: Record<string, any>;
}

export type Filter = {
  m: number;
  k: number;
  seed: number;
  timeUs: number;
  validForS: number;
  generation: string;
  map: string;
  groups: Record<string, Record<string, string[]>>;
  has(key: string): boolean;
};

/** Decodes the binary form of a filter (docs/sketch-wire.md); throws if it is broken. */
export function readFilter(raw: ArrayBuffer): Filter;

/** Returns the bit positions of a key. */
export function positions(key: string, shape: { m: number; k: number; seed: number }): number[];

/** Returns a query's parameters in the canonical form of its address and its filter key. */
export function canonicalQuery(parameters: Record<string, any>): string;
