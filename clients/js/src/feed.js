// The change feed: each write once, from a position on, whatever happens to the connection.
import { BrokenReply, Problem, Unreachable } from "./problems.js";
import { withParameters } from "./requests.js";
import { pausesS, sleep } from "./retries.js";

/** After which a connection counts as lost: the service sends something each 15 seconds. */
const SILENCE_S = 45;
const LONGEST_PAUSE_S = 10;
/** Statuses after which the feed tries again: the service's, and a proxy's that has lost it. */
const TRANSIENT = new Set([408, 429, 502, 503, 504]);

/** Makes events of the text of a stream, however it is divided. */
export class EventReader {
  #rest = [];
  #id = null;
  #data = [];

  /** Returns the events that are complete; one without data has only moved the position. */
  receive(text) {
    this.#rest.push(text);
    if (!text.includes("\n")) return [];
    const lines = this.#rest.join("").split("\n");
    this.#rest = [lines.pop()];
    return lines.flatMap((line) => this.#read(line));
  }

  #read(line) {
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
  let pauses = pausesS(reconnects, 0.25, LONGEST_PAUSE_S);
  while (!signal?.aborted) {
    let lost;
    try {
      for await (const event of events(connection, className, position, signal)) {
        pauses = pausesS(reconnects, 0.25, LONGEST_PAUSE_S);
        position = event.id ?? position;
        if (event.data !== "") yield { ...parsed(event.data), position };
      }
    } catch (error) {
      if (signal?.aborted) return;
      lost = transient(error);
    }
    const pauseS = pauses.next().value;
    if (pauseS === undefined) throw lost ?? new Unreachable("the service ends the stream of changes at once");
    await sleep(pauseS + Math.min(lost?.retryAfterS ?? 0, LONGEST_PAUSE_S), signal);
  }
}

async function* events(connection, className, position, signal) {
  const silence = new AbortController();
  const watch = () => setTimeout(() => silence.abort(), SILENCE_S * 1000);
  let timer = watch();
  const ends = signal ? AbortSignal.any([signal, silence.signal]) : silence.signal;
  const path = withParameters("changes", { class: className, after: position });
  try {
    const response = await connection.open(path, { accept: "text/event-stream" }, ends);
    const reader = new EventReader();
    const decoder = new TextDecoder();
    for await (const chunk of chunks(response.body)) {
      clearTimeout(timer);
      timer = watch();
      yield* reader.receive(decoder.decode(chunk, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** Yields the chunks of a body, which not every browser iterates by itself. */
async function* chunks(body) {
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** Returns an error after which the feed tries again; throws any other. */
function transient(error) {
  if (error instanceof BrokenReply) throw error;
  if (!(error instanceof Problem)) return new Unreachable("the stream of changes was lost", { cause: error });
  if (TRANSIENT.has(error.status)) return error;
  throw error;
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch (cause) {
    throw new BrokenReply("an event of the feed is no change", { cause });
  }
}
