// Types and descriptions of index.js; see docs/javascript-client.md.

export type Freshness = {
  /** `strong`: as the systems hold it now. `bounded`: from a materialised view, where there is one. */
  consistency?: "strong" | "bounded";
  /** The oldest that the answer of a view may be, in seconds. */
  maxStalenessS?: number;
  /** The `position` of a write that the answer must contain. */
  atLeast?: string;
};

export type Read<T = Record<string, any>> = { value: T; etag: string | null; partial: string[] };

export type Written = {
  /** The object; after a patch the fields that it named; null after a delete. */
  value: Record<string, any> | null;
  etag: string | null;
  position: string | null;
  /** Whether this is the recorded reply to the same request, sent before. */
  replayed: boolean;
  /** Cache groups that the write has not reached yet. */
  partial: string[];
};

export type WriteOptions = {
  ifMatch?: string;
  /** Makes two calls one write; each call has a key of its own otherwise. */
  idempotencyKey?: string;
};

/** One of the operations of docs/data-api.md, "Many objects". */
export type Operation = { op: string; class: string; id?: string; body?: unknown; if_match?: string; if_none_match?: string };

export type OperationResult = {
  status: number;
  id?: string;
  etag?: string;
  position?: string;
  replayed?: true;
  partial?: string[];
  body?: Record<string, any>;
  problem?: Problem;
};

export type Page = { items: Record<string, any>[]; next?: string | null; explain?: Record<string, any> };

export type Change = {
  id: string;
  database: string;
  class: string;
  object: string;
  group: string;
  version: number;
  kind: "create" | "replace" | "update" | "delete";
  before: Record<string, any> | null;
  after: Record<string, any> | null;
  time: string;
  /** Where to go on after this change. */
  position: string;
};

export type Options = {
  /** A key or a token, or a function that returns one for each request. */
  credential?: string | (() => string | Promise<string>);
  /** Sent with each request. */
  headers?: Record<string, string>;
  /** For a whole request; 30 by default. A time-out is not repeated. */
  timeoutS?: number;
  /** How often a request is sent, and how long it is waited for in between. */
  retries?: { attempts?: number; firstPauseS?: number; longestPauseS?: number };
  /** Sends the requests, if not the global one. */
  fetch?: typeof fetch;
};

/**
 * Reads and writes one database. A request is sent again after a lost connection, and when the service asks
 * for it by Retry-After; each write has an Idempotency-Key, so that it takes effect once.
 */
export class Client {
  constructor(baseUrl: string, database: string, options?: Options);
  /** With `known`, an earlier read of the same, only a change is transferred. */
  get(className: string, id: string, how?: { fields?: string[]; freshness?: Freshness; known?: Read }): Promise<Read>;
  getMany(
    className: string,
    ids: Iterable<string>,
    how?: { fields?: string[]; freshness?: Freshness },
  ): Promise<{ items: Record<string, any>[]; missing: string[] }>;
  /** Makes an object, or exactly some fields of it, what `value` says; `ifNoneMatch: "*"`: it must not exist. */
  put(
    className: string,
    id: string,
    value: object,
    how?: WriteOptions & { fields?: string[]; ifNoneMatch?: string },
  ): Promise<Written>;
  /** Creates an object, under the `id` in `value` or one that the service chooses. */
  create(className: string, value: object, how?: WriteOptions): Promise<Written>;
  /** Changes an object by a merge patch (RFC 7396), or an array by JSON Patch (RFC 6902). */
  patch(className: string, id: string, changes: object, how?: WriteOptions): Promise<Written>;
  /** Changes an object by operators that its store applies: `{ stock: { inc: -1 } }`. */
  update(className: string, id: string, operators: object, how?: WriteOptions): Promise<Written>;
  delete(className: string, id: string, how?: WriteOptions & { fields?: string[] }): Promise<Written>;
  /** A page of a query, which is as in a body (docs/queries.md). */
  query(className: string, query?: object, how?: { freshness?: Freshness }): Promise<Page>;
  /** The objects of all pages, each page requested when it is needed. */
  iterate(className: string, query?: object, how?: { freshness?: Freshness }): AsyncGenerator<Record<string, any>>;
  /** Each takes effect, or fails, by itself. */
  batch(operations: Operation[], how?: { idempotencyKey?: string }): Promise<OperationResult[]>;
  /** All or none: of none if a resource of `reads` has changed. */
  commit(
    operations: Operation[],
    how?: { reads?: { class: string; id: string; etag: string | null }[]; idempotencyKey?: string },
  ): Promise<OperationResult[]>;
  /**
   * Changes as they happen, until `signal` is aborted. After a lost connection it goes on where it was; a
   * change may come again then, with the same `id`. `after` is a position, or `beginning`.
   */
  changes(options?: {
    className?: string;
    after?: string;
    reconnects?: number;
    signal?: AbortSignal;
  }): AsyncGenerator<Change>;
}

/** Every error that the client throws by itself. */
export class PortolanError extends Error {}
/** No reply came; a write may or may not have taken effect. */
export class Unreachable extends PortolanError {}
/** A reply came that is not the service's. */
export class BrokenReply extends PortolanError {}
/** The service refused. */
export class Problem extends PortolanError {
  status: number;
  /** One of docs/problems.md, such as `not-found`. */
  kind: string;
  detail: string;
  locations: { pointer: string; detail: string }[];
  instance: string;
  retryAfterS: number | null;
  members: Record<string, any>;
}
