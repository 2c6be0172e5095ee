// What can go wrong, below PortolanError.

/** Every error that the client throws by itself; the key of a write that failed repeats it safely. */
export class PortolanError extends Error {
  constructor(message, { idempotencyKey = null, ...options } = {}) {
    super(message, options);
    this.name = new.target.name;
    this.idempotencyKey = idempotencyKey;
  }
}

/** No reply came that can be read; a write may or may not have taken effect. */
export class Unreachable extends PortolanError {}

/** A reply came that is not the service's: a proxy's page, for example. */
export class BrokenReply extends PortolanError {}

/** The service refused (RFC 9457); `kind` is one of those of docs/problems.md. */
export class Problem extends PortolanError {
  constructor(status, members, { retryAfterS = null, ...options } = {}) {
    const kind = String(members.type ?? "").split("/").pop();
    const detail = String(members.detail ?? members.title ?? "");
    super(`${status} ${kind}: ${detail}`, options);
    this.status = status;
    this.kind = kind;
    this.detail = detail;
    this.locations = Array.isArray(members.errors) ? members.errors : [];
    this.instance = String(members.instance ?? "");
    this.retryAfterS = retryAfterS;
    this.members = members;
  }
}

/** Returns the error for a refusal, whose body any proxy on the way may have written. */
export function problemOf(reply) {
  let members = null;
  try {
    members = JSON.parse(reply.text);
  } catch {
    // A proxy's page: the status says what there is to say.
  }
  const isObject = typeof members === "object" && members !== null && !Array.isArray(members);
  const options = { retryAfterS: retryAfterS(reply), idempotencyKey: reply.idempotencyKey };
  return new Problem(reply.status, isObject ? members : {}, options);
}

/** Returns the seconds of Retry-After, or null. */
export function retryAfterS(reply) {
  const seconds = reply.headers.get("retry-after") ?? "";
  return /^[0-9]{1,9}$/.test(seconds) ? Number(seconds) : null;
}
