// What goes wrong, as exceptions: the problems of docs/problems.md, and the lack of any answer.

/** What went wrong; `status` 0: there was no answer, or a broken one. */
export class PortolanError extends Error {
  constructor(status, problem, cause) {
    super(problem.detail ?? `status ${status}`, { cause });
    Object.assign(this, { status, problem, kind: `${problem.type ?? ""}`.split("/").pop() });
  }
}

/** Returns the error of an answer that did not come, or cannot be believed. */
export const failure = (detail, cause) => new PortolanError(0, { detail }, cause);

/** Returns the error that an answer is. */
export function problemOf({ status, body }) {
  let problem;
  try {
    problem = JSON.parse(body);
  } catch {} // Anything on the way may have written the body.
  return new PortolanError(status, Object(problem));
}
