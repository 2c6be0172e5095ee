// Exceptions: the problems of docs/problems.md, and missing or broken responses.

/** An error of the client or of the service; `status` 0: no response, or a broken one. */
export class PortolanError extends Error {
  constructor(status, problem, cause) {
    super(problem.detail ?? `status ${status}`, { cause });
    Object.assign(this, { status, problem, kind: `${problem.type ?? ""}`.split("/").pop() });
  }
}

/** Returns the error for a missing or an invalid response. */
export const failure = (detail, cause) => new PortolanError(0, { detail }, cause);

/** Returns the error for a response that is a problem. */
export function problemOf({ status, body }) {
  let problem;
  try {
    problem = JSON.parse(body);
  } catch {} // A proxy may have written the body.
  return new PortolanError(status, Object(problem));
}
