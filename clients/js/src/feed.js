// The change feed: every write after a position; reconnects after a lost connection.
import { BrokenReply, Problem, Unreachable } from "./problems.js";
import { withParameters } from "./requests.js";
import { pausesS, sleep } from "./retries.js";

/** The silence after which a connection counts as lost: the service sends data every 15 seconds. */
const SILENCE_S = 45;
const MAX_PAUSE_S = 10;
/** Statuses after which the feed reconnects: of the service, and of a proxy that cannot reach it. */
const TRANSIENT = new Set([408, 429, 502, 503, 504]);

/** Parses the events of a stream, however its text is split into chunks. */
export class EventReader {
  #remainder = [];
  #id = null;
  #data = [];

  /** Returns the complete events; an event without data only moves the position. */
  receive(text) {
    this.#remainder.push(text);
    if (!text.includes("\n")) return [];
    const lines = this.#remainder.join("").split("\n");
    this.#remainder = [lines.pop()];
    return lines.flatMap((line) => this.#readLine(line));
  }

  #readLine(line) {
    if (line === "") {
      const event = { id: this.#id, data: this.#data.join("\n") };
      this.#data = [];
      return [event];
    }
    const colon = line.indexOf(":");
    const [name, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    if (name === "id") this.#id = value;
    else if (name === "data") this.#data.push(value);
    return [];
  }
}

/** Yields changes as they happen, until `signal` is aborted. */
export async function* follow(connection, { className, after, reconnects = 10, signal } = {}) {
  let position = after;
  let pauses = pausesS(reconnects, 0.25, MAX_PAUSE_S);
  while (!signal?.aborted) {
    let failure;
    try {
      for await (const event of events(connection, className, position, signal)) {
        pauses = pausesS(reconnects, 0.25, MAX_PAUSE_S);
        position = event.id ?? position;
        if (event.data !== "") yield { ...parseChange(event.data), position };
      }
    } catch (error) {
      if (signal?.aborted) return;
      failure = transient(error);
    }
    const pauseS = pauses.next().value;
    if (pauseS === undefined) throw failure ?? new Unreachable("the service ends the stream of changes at once");
    await sleep(pauseS + Math.min(failure?.retryAfterS ?? 0, MAX_PAUSE_S), signal);
  }
}

async function* events(connection, className, position, signal) {
  const silence = new AbortController();
  const startTimer = () => setTimeout(() => silence.abort(), SILENCE_S * 1000);
  let timer = startTimer();
  const endSignal = signal ? AbortSignal.any([signal, silence.signal]) : silence.signal;
  const path = withParameters("changes", { class: className, after: position });
  try {
    const response = await connection.open(path, { accept: "text/event-stream" }, endSignal);
    const reader = new EventReader();
    const decoder = new TextDecoder();
    for await (const chunk of chunks(response.body)) {
      clearTimeout(timer);
      timer = startTimer();
      yield* reader.receive(decoder.decode(chunk, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** Yields the chunks of a body; not every browser can iterate over a stream. */
async function* chunks(body) {
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** Returns an error after which the feed reconnects; throws any other error. */
function transient(error) {
  if (error instanceof BrokenReply) throw error;
  if (!(error instanceof Problem)) return new Unreachable("the stream of changes was lost", { cause: error });
  if (TRANSIENT.has(error.status)) return error;
  throw error;
}

function parseChange(data) {
  try {
    return JSON.parse(data);
  } catch (cause) {
    throw new BrokenReply("an event of the feed is not a change", { cause });
  }
}
