// Tests of the JavaScript client without a service.
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventReader } from "../../../../clients/js/src/feed.js";
import { BrokenReply, Client, Problem, Unreachable } from "../../../../clients/js/src/index.js";

const NO_PAUSES = { attempts: 3, firstPauseS: 0, keyInUseS: 4 };
const success = () => Response.json({ id: "a" });
const refusal = (status, kind, headers) => () => Response.json({ type: `/problems/${kind}` }, { status, headers });
const lost = () => {
  throw new TypeError("fetch failed");
};
const timedOut = () => {
  throw new DOMException("too late", "TimeoutError");
};

/** Returns a client whose `fetch` follows a script, and the requests that it sends. */
function scripted(...steps) {
  const requests = [];
  const fetch = async (url, request) => {
    requests.push({ url, ...request });
    return steps[requests.length - 1]();
  };
  return [new Client("http://p/", "shop", { fetch, retries: NO_PAUSES, credential: async () => "key" }), requests];
}

test("events do not depend on the chunks of the stream", () => {
  const stream = 'id: p0\n\n: heartbeat\nid: p1\n\nid: p2\nevent: change\ndata: {"a": "\u2028"}\n\ndata:x\ndata: y\n\nid: p9\n';
  const events = [
    { id: "p0", data: "" },
    { id: "p1", data: "" },
    { id: "p2", data: '{"a": "\u2028"}' },
    { id: "p2", data: "x\ny" },
  ];
  for (let size = 1; size <= stream.length; size += 1) {
    const reader = new EventReader();
    const received = [];
    for (let start = 0; start < stream.length; start += size) received.push(...reader.receive(stream.slice(start, start + size)));
    assert.deepEqual(received, events);
  }
});

test("a request is retried under its key, a limited number of times", async () => {
  const busy = refusal(503, "unavailable", { "retry-after": "0" });
  const inUse = refusal(409, "idempotency-key-in-use", { "retry-after": "0" });
  for (const failures of [[lost, lost], [busy, lost], [inUse, busy]]) {
    const [client, requests] = scripted(...failures, success);
    assert.deepEqual((await client.put("t", "a", {})).value, { id: "a" });
    assert.equal(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
    assert(requests.every(({ headers }) => headers.authorization === "Bearer key"));
  }
  for (const [failure, error] of [[lost, Unreachable], [busy, Problem]]) {
    const [client, requests] = scripted(failure, failure, failure);
    await assert.rejects(client.get("t", "a"), error);
    assert.equal(requests.length, 3);
  }
});

test("waits for a key are limited, and do not count as attempts", async () => {
  const inUse = refusal(409, "idempotency-key-in-use", { "retry-after": "0" });
  for (const [steps, error] of [
    [[lost, lost, ...Array(5).fill(inUse)], { kind: "idempotency-key-in-use" }],
    [[...Array(4).fill(inUse), lost, lost, lost], { name: "Unreachable" }],
  ]) {
    const [client, requests] = scripted(...steps);
    await assert.rejects(client.put("t", "a", {}), error);
    assert.equal(requests.length, 7);
  }
  let requests = 0;
  const fetch = async () => (requests++, inUse());
  const client = new Client("http://p/", "shop", { fetch, retries: { attempts: 1 } });
  await assert.rejects(client.put("t", "a", {}), { kind: "idempotency-key-in-use" });
  assert.equal(requests, 1);
});

test("an error has the key of its write", async () => {
  const page = (status) => () => new Response("<html>", { status });
  for (const failure of [timedOut, page(502), page(200)]) {
    for (const idempotencyKey of [undefined, '"sale" \\ 7']) {
      const [client, requests] = scripted(failure, success);
      const error = await client.update("t", "a", {}, { idempotencyKey }).catch((thrown) => thrown);
      assert.equal(typeof error.idempotencyKey, "string");
      if (idempotencyKey !== undefined) assert.equal(error.idempotencyKey, idempotencyKey);
      await client.update("t", "a", {}, { idempotencyKey: error.idempotencyKey });
      assert.equal(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
    }
  }
  const [client] = scripted(refusal(404, "not-found"));
  await assert.rejects(client.get("t", "a"), { idempotencyKey: null });
});

test("final replies and time-outs are not retried", async () => {
  for (const [step, error] of [
    [refusal(503, "unavailable"), Problem],
    [refusal(503, "unavailable", { "retry-after": "6" }), Problem],
    [refusal(409, "locked"), Problem],
    [refusal(500, "internal", { "retry-after": "0" }), Problem],
    [timedOut, Unreachable],
    [() => new Response("<html>"), BrokenReply],
    [() => new Response("<html>", { status: 502 }), Problem],
  ]) {
    const [client, requests] = scripted(step);
    await assert.rejects(client.update("t", "a", {}), error);
    assert.equal(requests.length, 1);
  }
});

test("the value of a preference cannot inject another preference", async () => {
  const [client, requests] = scripted(success);
  await client.get("t", "a", { freshness: { atLeast: 'p", consistency="strong' } });
  assert.equal(requests[0].headers.prefer, 'at-least="p\\", consistency=\\"strong", handling=strict');
});

test("a write by conditions continues to its last page, under one key", async () => {
  const page = (next, ids) => () =>
    Response.json({ matched: 2, written: 1, failed: ids.length, next, sample: [], problems: ids.map((id) => ({ id })) });
  const [client, requests] = scripted(page("b", ["a"]), lost, page(null, ["c"]));
  const summary = await client.deleteWhere("t", { eq: ["name", "x,y&z"] }, { allowScan: true });
  assert.deepEqual([summary.matched, summary.written, summary.failed, summary.problems], [4, 2, 2, [{ id: "a" }, { id: "c" }]]);
  const queries = requests.map(({ url }) => Object.fromEntries(new URL(url).searchParams));
  const first = { filter: '{"eq":["name","x,y&z"]}', allow_scan: "true" };
  assert.deepEqual(queries, [first, { ...first, after: "b" }, { ...first, after: "b" }]);
  assert.equal(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
});
