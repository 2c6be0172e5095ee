// Parts of the JavaScript client that need no service.
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventReader } from "../../../../clients/js/src/feed.js";
import { BrokenReply, Client, Problem, Unreachable } from "../../../../clients/js/src/index.js";

const AT_ONCE = { attempts: 3, firstPauseS: 0, keyInUseS: 4 };
const done = () => Response.json({ id: "a" });
const refusal = (status, kind, headers) => () => Response.json({ type: `/problems/${kind}` }, { status, headers });
const lost = () => {
  throw new TypeError("fetch failed");
};
const late = () => {
  throw new DOMException("too late", "TimeoutError");
};

/** Returns a client whose service answers, or fails, as it is written; and the requests that it sends. */
function scripted(...steps) {
  const requests = [];
  const fetch = async (url, request) => {
    requests.push({ url, ...request });
    return steps[requests.length - 1]();
  };
  return [new Client("http://p/", "shop", { fetch, retries: AT_ONCE, credential: async () => "key" }), requests];
}

test("events do not depend on how they arrive", () => {
  const stream = 'id: p0\n\n: heartbeat\nid: p1\n\nid: p2\nevent: change\ndata: {"a": "\u2028"}\n\ndata:x\ndata: y\n\nid: p9\n';
  const events = [
    { id: "p0", data: "" },
    { id: "p1", data: "" },
    { id: "p2", data: '{"a": "\u2028"}' },
    { id: "p2", data: "x\ny" },
  ];
  for (let size = 1; size <= stream.length; size += 1) {
    const reader = new EventReader();
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...reader.receive(stream.slice(at, at + size)));
    assert.deepEqual(found, events);
  }
});

test("a request is sent again under its key, and not for ever", async () => {
  const busy = refusal(503, "unavailable", { "retry-after": "0" });
  const inUse = refusal(409, "idempotency-key-in-use", { "retry-after": "0" });
  for (const failures of [[lost, lost], [busy, lost], [inUse, busy]]) {
    const [client, requests] = scripted(...failures, done);
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

test("waits for a key end, and are no attempts", async () => {
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
  const once = new Client("http://p/", "shop", { fetch, retries: { attempts: 1 } });
  await assert.rejects(once.put("t", "a", {}), { kind: "idempotency-key-in-use" });
  assert.equal(requests, 1);
});

test("an error has the key of its write", async () => {
  const page = (status) => () => new Response("<html>", { status });
  for (const failure of [late, page(502), page(200)]) {
    for (const idempotencyKey of [undefined, '"sale" \\ 7']) {
      const [client, requests] = scripted(failure, done);
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

test("what would not help is not sent again", async () => {
  for (const [final, error] of [
    [refusal(503, "unavailable"), Problem],
    [refusal(503, "unavailable", { "retry-after": "6" }), Problem],
    [refusal(409, "locked"), Problem],
    [refusal(500, "internal", { "retry-after": "0" }), Problem],
    [late, Unreachable],
    [() => new Response("<html>"), BrokenReply],
    [() => new Response("<html>", { status: 502 }), Problem],
  ]) {
    const [client, requests] = scripted(final);
    await assert.rejects(client.update("t", "a", {}), error);
    assert.equal(requests.length, 1);
  }
});

test("a preference cannot become another", async () => {
  const [client, requests] = scripted(done);
  await client.get("t", "a", { freshness: { atLeast: 'p", consistency="strong' } });
  assert.equal(requests[0].headers.prefer, 'at-least="p\\", consistency=\\"strong", handling=strict');
});

test("a write by conditions goes on until nothing is left, under one key", async () => {
  const part = (next, ids) => () =>
    Response.json({ matched: 2, written: 1, failed: ids.length, next, sample: [], problems: ids.map((id) => ({ id })) });
  const [client, requests] = scripted(part("b", ["a"]), lost, part(null, ["c"]));
  const summary = await client.deleteWhere("t", { eq: ["name", "x,y&z"] }, { allowScan: true });
  assert.deepEqual([summary.matched, summary.written, summary.failed, summary.problems], [4, 2, 2, [{ id: "a" }, { id: "c" }]]);
  const sent = requests.map(({ url }) => Object.fromEntries(new URL(url).searchParams));
  const first = { filter: '{"eq":["name","x,y&z"]}', allow_scan: "true" };
  assert.deepEqual(sent, [first, { ...first, after: "b" }, { ...first, after: "b" }]);
  assert.equal(new Set(requests.map(({ headers }) => headers["idempotency-key"])).size, 1);
});
