// Types and descriptions of portolan.mjs; see docs/caching-clients.md. Apache-2.0.

/** Who answered: the client's own copy, a cache on the way that says so, or the origin. */
export type Source = "own" | "shared" | "origin";
export type Read = { value: any; etag: string | null; source: Source };
export type Result = {
  items: any[];
  next: string | null;
  source: Source;
  /** How many objects there are on all pages, and how they were counted, if `count` was given. */
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
  /** Sent with each request, such as Authorization. */
  headers?: Record<string, string>;
  /** What the copies may take. */
  cacheBytes?: number;
  /** For tests. */
  fetch?: typeof fetch;
  /** Seconds that pass, sleep included; for tests. */
  clock?: () => number;
  /** Waits for some seconds; for tests. */
  sleep?: (seconds: number) => Promise<any>;
};

export type Client = {
  /** How often reads and filters went which way. */
  stats: Record<"hits" | "joined" | "fetches" | "revalidations" | "filters" | "failures" | "bytes", number>;
  get(
    name: string,
    id: string,
    how?: { fields?: string[]; refresh?: boolean; atLeast?: string; missingOk?: boolean },
  ): Promise<Read>;
  /**
   * Asks for objects of a class, by the parameters of docs/queries.md. The result is no older than any
   * write that was acknowledged more than `deltaS` before. With `oneByOne` only the ids are requested, and
   * each object is read, and cached, by itself.
   */
  query(
    name: string,
    parameters?: Record<string, any>,
    how?: { oneByOne?: boolean; refresh?: boolean },
  ): Promise<Result>;
  /**
   * Sets an object to a value. Where the service answers a write with the whole object, that is kept, and the
   * next read needs no request.
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
  /** Creates an object, or a list of them. */
  post(name: string, value: object | object[], how?: Conditions): Promise<Written>;
  /**
   * Gets a filter that is made after this call: from now on no copy is used that was outdated before it,
   * however young it is.
   */
  refreshFilter(): Promise<void>;
  /** Takes an object for written, by whomever. */
  doubt(name: string, id: string): void;
  /** Gives up everything under way. */
  close(): void;
};

/**
 * Reads and writes one database; answers once the first filter was requested.
 * @param url of the service, or of the cache before it
 */
export function connect(url: string, database: string, options?: Options): Promise<Client>;

/** What went wrong. */
export class PortolanError extends Error {
  /** 0: there was no answer, or a broken one. */
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

/** Reads the binary form of a filter (docs/sketch-wire.md); throws if it is broken. */
export function readFilter(raw: ArrayBuffer): Filter;

/** The bits of a key. */
export function positions(key: string, shape: { m: number; k: number; seed: number }): number[];

/** The parameters of a query as its address and its key have them. */
export function canonicalQuery(parameters: Record<string, any>): string;
