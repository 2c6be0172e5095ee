// The errors of the client, subclasses of PortolanError.

/** The base of the client's errors; a failed write can be repeated safely under its idempotency key. */
export class PortolanError extends Error {
  constructor(message, { idempotencyKey = null, ...options } = {}) {
    super(message, options);
    this.name = new.target.name;
    this.idempotencyKey = idempotencyKey;
  }
}

/** No readable reply arrived; a write may or may not have taken effect. */
export class Unreachable extends PortolanError {}

/** The reply is not from the service: a proxy's page, for example. */
export class BrokenReply extends PortolanError {}

/** A refusal by the service (RFC 9457); docs/problems.md lists its kinds. */
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

/** Returns the error for a refusal; a proxy may have written its body. */
export function problemOf(reply) {
  let members = null;
  try {
    members = JSON.parse(reply.text);
  } catch {
    // A proxy's page: only the status counts.
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
