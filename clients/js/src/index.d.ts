// Types and descriptions of index.js; see docs/javascript-client.md.

export type Freshness = {
  /** `strong`: as the systems hold it now. `bounded`: from a materialised view, where there is one. */
  consistency?: "strong" | "bounded";
  /** The oldest that the answer of a view may be, in seconds. */
  maxStalenessS?: number;
  /** The `position` of a write that the answer must contain. */
  atLeast?: string;
};

/** The types of a class; `portolan schema typescript` writes those of all classes of a database. */
export type ClassTypes = { object: object; new: object; patch: object; operators: object };

/** What is known of a database without such types: nothing. */
export type Untyped = Record<string, { object: Record<string, any>; new: object; patch: object; operators: object }>;

/** An object of which only some fields, and the id, were read. */
export type Selected<T, F extends keyof T> = Pick<T, F | ("id" & keyof T)>;

/** RFC 6902. */
export type JsonPatch = { op: "add" | "remove" | "replace" | "move" | "copy" | "test"; path: string; from?: string; value?: unknown }[];

export type Read<T = Record<string, any>> = {
  class: string;
  id: string;
  /** Those that were read; undefined: the whole object. */
  fields?: string[];
  value: T;
  etag: string | null;
  partial: string[];
};

export type Written<T = Record<string, any>> = {
  /** The object; after a patch the fields that it named; null after a delete. */
  value: T;
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

/** A filter as in the body of a query (docs/queries.md), or all objects of the class. */
export type Where = { [operator: string]: unknown } | "all";

export type WriteAllOptions = {
  /** Whether all objects of the class may be read to find those meant. */
  allowScan?: boolean;
  /** Only count them. */
  dryRun?: boolean;
  /** Under which no object is written twice. */
  idempotencyKey?: string;
};

/** What became of the objects that met a condition. */
export type WriteSummary = {
  matched: number;
  written: number;
  failed: number;
  /** Ids of some that a dry run has found. */
  sample: string[];
  /** Why objects were not written: the first hundred, each with its `id`. */
  problems: Record<string, any>[];
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

export type Page<T = Record<string, any>> = {
  items: T[];
  next?: string | null;
  /** How many there are on all pages, where `count` is given. */
  total?: number;
  explain?: Record<string, any>;
};

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
  /** The version of the schema whose names all requests use, however fields are renamed later. */
  schemaVersion?: number;
  /** For a whole request; 30 by default. A time-out is not repeated. */
  timeoutS?: number;
  /**
   * How often a request is sent, and how long it is waited for in between; `keyInUseS` (30 by default): for how
   * long a write whose connection was lost is sent again while the service still works on its first attempt.
   */
  retries?: { attempts?: number; firstPauseS?: number; longestPauseS?: number; keyInUseS?: number };
  /** Sends the requests, if not the global one. */
  fetch?: typeof fetch;
};

type Name<D> = keyof D & string;
type Member<D, C extends keyof D, M extends keyof ClassTypes> = D[C] extends ClassTypes ? D[C][M] : never;
type Fields<D, C extends keyof D> = keyof Member<D, C, "object"> & string;
/** The value of a put, of a whole object or of some fields; written so that it does not decide which. */
type Put<New, F> = { [K in keyof New as K extends F | "id" ? K : never]: New[K] };

/**
 * Reads and writes one database. A request is sent again after a lost connection, and when the service asks
 * for it by Retry-After; each write has an Idempotency-Key, so that it takes effect once.
 *
 * `D` has the types of its classes, as `portolan schema typescript` writes them.
 */
export class Client<D extends { [C in keyof D]: ClassTypes } = Untyped> {
  constructor(baseUrl: string, database: string, options?: Options);
  /** With `known`, an earlier read of the same, only a change is transferred; a `RangeError`: it is of something else. */
  get<C extends Name<D>, F extends Fields<D, C> = Fields<D, C>>(
    className: C,
    id: string,
    how?: { fields?: F[]; freshness?: Freshness; known?: Read<Selected<Member<D, C, "object">, F>> },
  ): Promise<Read<Selected<Member<D, C, "object">, F>>>;
  getMany<C extends Name<D>, F extends Fields<D, C> = Fields<D, C>>(
    className: C,
    ids: Iterable<string>,
    how?: { fields?: F[]; freshness?: Freshness },
  ): Promise<{ items: Selected<Member<D, C, "object">, F>[]; missing: string[] }>;
  /** Makes an object, or exactly some fields of it, what `value` says; `ifNoneMatch: "*"`: it must not exist. */
  put<C extends Name<D>, F extends Fields<D, C> = Fields<D, C>>(
    className: C,
    id: string,
    value: Put<Member<D, C, "new">, F>,
    how?: WriteOptions & { fields?: F[]; ifNoneMatch?: string },
  ): Promise<Written<Selected<Member<D, C, "object">, F>>>;
  /** Creates an object, under the `id` in `value` or one that the service chooses. */
  create<C extends Name<D>>(
    className: C,
    value: Member<D, C, "new">,
    how?: WriteOptions,
  ): Promise<Written<Member<D, C, "object">>>;
  /** Changes an object by a merge patch (RFC 7396), or an array by JSON Patch (RFC 6902); with `upsert` it may be new. */
  patch<C extends Name<D>>(
    className: C,
    id: string,
    changes: Member<D, C, "patch"> | JsonPatch,
    how?: WriteOptions & { upsert?: boolean },
  ): Promise<Written<Partial<Member<D, C, "object">>>>;
  /** Changes an object by operators that its store applies: `{ stock: { inc: -1 } }`; with `upsert` it may be new. */
  update<C extends Name<D>>(
    className: C,
    id: string,
    operators: Member<D, C, "operators">,
    how?: WriteOptions & { upsert?: boolean },
  ): Promise<Written<Partial<Member<D, C, "object">>>>;
  /** Changes the object that has the values of a unique constraint, or creates it with them; a patch is as in `patch`. */
  patchBy<C extends Name<D>>(
    className: C,
    key: Member<D, C, "patch">,
    changes: Member<D, C, "patch"> | JsonPatch,
    how?: WriteOptions,
  ): Promise<Written<Partial<Member<D, C, "object">>>>;
  /** Changes the object that has the values of a unique constraint by operators, or creates it. */
  updateBy<C extends Name<D>>(
    className: C,
    key: Member<D, C, "patch">,
    operators: Member<D, C, "operators">,
    how?: WriteOptions,
  ): Promise<Written<Partial<Member<D, C, "object">>>>;
  delete<C extends Name<D>>(
    className: C,
    id: string,
    how?: WriteOptions & { fields?: Fields<D, C>[] },
  ): Promise<Written<null>>;
  /** Changes all objects that meet a condition, each by itself; a patch is as in `patch`. */
  patchWhere<C extends Name<D>>(
    className: C,
    where: Where,
    changes: Member<D, C, "patch"> | JsonPatch,
    how?: WriteAllOptions,
  ): Promise<WriteSummary>;
  /** Changes all objects that meet a condition by operators. */
  updateWhere<C extends Name<D>>(
    className: C,
    where: Where,
    operators: Member<D, C, "operators">,
    how?: WriteAllOptions,
  ): Promise<WriteSummary>;
  /** Deletes all objects that meet a condition. */
  deleteWhere(className: Name<D>, where: Where, how?: WriteAllOptions): Promise<WriteSummary>;
  /**
   * A page of a query, which is as in a body (docs/queries.md). What an aggregate, a join or `fields` make of an
   * item is the caller's to say: `const page: Page<{ n: number }> = await …`.
   */
  query<C extends Name<D>, T = Member<D, C, "object">>(
    className: C,
    query?: object,
    how?: { freshness?: Freshness },
  ): Promise<Page<T>>;
  /** The objects of all pages, each page requested when it is needed. */
  iterate<C extends Name<D>, T = Member<D, C, "object">>(
    className: C,
    query?: object,
    how?: { freshness?: Freshness },
  ): AsyncGenerator<T>;
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
export class PortolanError extends Error {
  /** Of the write that failed: under this key the same call can be repeated, and takes effect once. */
  idempotencyKey: string | null;
}
/** No reply came that can be read; a write may or may not have taken effect. */
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
