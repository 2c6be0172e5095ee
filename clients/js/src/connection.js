// Sends requests, and retries them where that is safe.
import { BrokenReply, problemOf, Unreachable } from "./problems.js";
import { keyOf } from "./requests.js";
import { Attempts, sleep } from "./retries.js";

export class Connection {
  constructor(baseUrl, { credential, headers = {}, timeoutS = 30, retries = {}, fetch = globalThis.fetch }) {
    this.baseUrl = baseUrl;
    this.retries = retries;
    this.timeoutS = timeoutS;
    // A browser's `fetch` must not be called as a method of another object.
    this.fetch = (url, request) => fetch(url, request);
    this.headersOf = async () => {
      const token = typeof credential === "function" ? await credential() : credential;
      return token === undefined ? headers : { ...headers, authorization: `Bearer ${token}` };
    };
  }

  /** Sends a request; returns the reply, or throws `Problem`, `Unreachable` or `BrokenReply`. */
  async send(method, path, { headers = {}, body, type = "application/json" } = {}) {
    const requestHeaders = body === undefined ? headers : { ...headers, "content-type": type };
    const content = body === undefined ? undefined : JSON.stringify(body);
    const attempts = new Attempts(this.retries);
    const idempotencyKey = keyOf(headers);
    for (;;) {
      const reply = { ...(await this.#attempt(method, path, requestHeaders, content)), idempotencyKey };
      const pauseS = attempts.pauseAfter(reply);
      if (pauseS !== null) await sleep(pauseS);
      else if (reply.error) throw new Unreachable(`${method} ${path}: no reply`, { cause: reply.error, idempotencyKey });
      else if (reply.status === 304 || (reply.status >= 200 && reply.status < 300)) return reply;
      else throw problemOf(reply);
    }
  }

  /** Opens a stream; returns the response, or throws `Problem` or `Unreachable`. */
  async open(path, headers, signal) {
    const allHeaders = { ...(await this.headersOf()), ...headers };
    const response = await this.fetch(this.baseUrl + path, { headers: allHeaders, signal, redirect: "error" });
    if (response.ok) return response;
    throw problemOf({ status: response.status, headers: response.headers, text: await response.text() });
  }

  async #attempt(method, path, headers, body) {
    const allHeaders = { ...(await this.headersOf()), ...headers };
    const signal = AbortSignal.timeout(this.timeoutS * 1000);
    const request = { method, headers: allHeaders, body, signal, redirect: "error" };
    try {
      const response = await this.fetch(this.baseUrl + path, request);
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch (error) {
      return { error };
    }
  }
}

/** Parses the JSON of a reply; throws `BrokenReply` if it is invalid, as in a proxy's page. */
export function jsonOf(reply) {
  try {
    return JSON.parse(reply.text);
  } catch (cause) {
    const { idempotencyKey } = reply;
    throw new BrokenReply(`a reply with status ${reply.status} is not JSON`, { cause, idempotencyKey });
  }
}
