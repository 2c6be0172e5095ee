// Sends requests, again where that is safe.
import { BrokenReply, problemOf, retryAfterS, Unreachable } from "./problems.js";

/** Statuses that say with Retry-After that nothing stands against the same request, but the time. */
const LATER = new Set([409, 429, 503]);

export class Connection {
  constructor(baseUrl, { credential, headers = {}, timeoutS = 30, retries = {}, fetch = globalThis.fetch }) {
    this.baseUrl = baseUrl;
    this.retries = { attempts: 4, firstPauseS: 0.1, longestPauseS: 5, ...retries };
    this.timeoutS = timeoutS;
    // A browser's fetch refuses to be called as a method of something else.
    this.fetch = (url, request) => fetch(url, request);
    this.headersOf = async () => {
      const token = typeof credential === "function" ? await credential() : credential;
      return token === undefined ? headers : { ...headers, authorization: `Bearer ${token}` };
    };
  }

  /** Sends a request; returns the reply, or throws `Problem`, `Unreachable` or `BrokenReply`. */
  async send(method, path, { headers = {}, body, type = "application/json" } = {}) {
    const own = body === undefined ? headers : { ...headers, "content-type": type };
    const content = body === undefined ? undefined : JSON.stringify(body);
    const pauses = pausesS(this.retries.attempts - 1, this.retries.firstPauseS, this.retries.longestPauseS);
    for (;;) {
      const reply = await this.#attempt(method, path, own, content);
      const pauseS = this.#pauseAfter(reply, pauses);
      if (pauseS !== null) await sleep(pauseS);
      else if (reply.error) throw new Unreachable(`${method} ${path}: no reply`, { cause: reply.error });
      else if (reply.status === 304 || (reply.status >= 200 && reply.status < 300)) return reply;
      else throw problemOf(reply);
    }
  }

  /** Opens a stream; returns the response, or throws `Problem` or `Unreachable`. */
  async open(path, headers, signal) {
    const all = { ...(await this.headersOf()), ...headers };
    const response = await this.fetch(this.baseUrl + path, { headers: all, signal, redirect: "error" });
    if (response.ok) return response;
    throw problemOf({ status: response.status, headers: response.headers, text: await response.text() });
  }

  async #attempt(method, path, headers, body) {
    const all = { ...(await this.headersOf()), ...headers };
    const signal = AbortSignal.timeout(this.timeoutS * 1000);
    const request = { method, headers: all, body, signal, redirect: "error" };
    try {
      const response = await this.fetch(this.baseUrl + path, request);
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch (error) {
      return { error };
    }
  }

  #pauseAfter(reply, pauses) {
    // A time-out is the caller's bound, and not repeated.
    if (reply.error) return reply.error.name === "TimeoutError" ? null : (pauses.next().value ?? null);
    const seconds = LATER.has(reply.status) ? retryAfterS(reply) : null;
    if (seconds === null || seconds > this.retries.longestPauseS) return null;
    const spread = pauses.next().value ?? null;
    return spread === null ? null : seconds + spread;
  }
}

/** Returns the JSON of a reply; throws `BrokenReply` if there is none, as in a proxy's page. */
export function jsonOf(reply) {
  try {
    return JSON.parse(reply.text);
  } catch (cause) {
    throw new BrokenReply(`a reply of status ${reply.status} is no JSON`, { cause });
  }
}

/** Yields pauses that double; each is random below its bound, so that clients do not agree. */
export function* pausesS(count, firstS, longestS) {
  for (let bound = firstS, left = count; left > 0; left -= 1) {
    yield bound * Math.random();
    bound = Math.min(2 * bound, longestS);
  }
}

export function sleep(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(end, seconds * 1000);
    signal?.addEventListener("abort", end, { once: true });
    function end() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    }
  });
}
