// The JavaScript client against the service at PORTOLAN_DATA, whose database has the shop's schema.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Client, Problem, Unreachable } from "../../../../clients/js/src/index.js";

const { PORTOLAN_DATA: url, PORTOLAN_DATABASE: database } = process.env;
const shop = new Client(url, database);
const lamp = { name: "Lamp", price: "30", stock: 12 };
const refused = (kind) => (error) => error instanceof Problem && error.kind === kind;

before(async () => {
  await shop.put("products", "lamp", lamp);
});

test("an object is put, read, changed and deleted", async () => {
  const written = await shop.put("products", "chair", { name: "Chair", stock: 4 }, { ifNoneMatch: "*" });
  const read = await shop.get("products", "chair");
  assert.deepEqual([read.value, read.etag], [written.value, written.etag]);
  assert.equal(await shop.get("products", "chair", { known: read }), read);
  const nameRead = await shop.get("products", "chair", { fields: new Set(["name"]).values() });
  assert.deepEqual([nameRead.class, nameRead.id, nameRead.fields], ["products", "chair", ["name"]]);
  const priceRead = await shop.get("products", "chair", { fields: ["price"] });
  assert.equal(priceRead.etag, nameRead.etag, "the fields are in one group");
  assert.equal(await shop.get("products", "chair", { fields: ["name"], known: nameRead }), nameRead);
  for (const [known, fields] of [[read, ["name"]], [nameRead, undefined], [priceRead, ["name"]]])
    await assert.rejects(shop.get("products", "chair", { fields, known }), RangeError);
  for (const [name, id] of [["products", "lamp"], ["customers", "chair"]])
    await assert.rejects(shop.get(name, id, { known: read }), RangeError);
  assert.deepEqual((await shop.update("products", "chair", { stock: { inc: -1 } })).value, { id: "chair", stock: 3 });
  assert.deepEqual((await shop.patch("products", "chair", { name: "Stool" })).value, { id: "chair", name: "Stool" });
  const operations = [{ op: "replace", path: "/name", value: "Seat" }];
  assert.equal((await shop.patch("products", "chair", operations)).value.name, "Seat");
  assert.deepEqual((await shop.get("products", "chair", { fields: ["stock", "stock"] })).value, { id: "chair", stock: 3 });
  await assert.rejects(shop.put("products", "chair", lamp, { ifMatch: read.etag }), refused("precondition-failed"));
  assert.equal((await shop.delete("products", "chair")).value, null);
  await assert.rejects(shop.get("products", "chair"), refused("not-found"));
});

test("an upsert creates a missing object", async () => {
  await assert.rejects(shop.update("products", "fresh", { stock: { inc: 1 } }), refused("not-found"));
  for (const stock of [2, 4]) {
    await shop.update("products", "fresh", { name: { set: "Fresh" }, stock: { inc: 2 } }, { upsert: true });
    assert.equal((await shop.get("products", "fresh")).value.stock, stock);
  }
  await shop.patch("customers", "fresh", { name: "Fresh" }, { upsert: true, idempotencyKey: "fresh" });
  for (const [name, id] of [["products", "fresh"], ["customers", "fresh"]]) await shop.delete(name, id);
});

test("every id has an address", async () => {
  for (const id of ["query", "a:b", "50%", "ä,ö", "+ ?&=#"]) {
    await shop.put("customers", id, { name: id });
    assert.equal((await shop.get("customers", id)).value.name, id);
    const { items, missing } = await shop.getMany("customers", [id, "none", "c,d"]);
    assert.deepEqual([items[0].id, new Set(missing)], [id, new Set(["none", "c,d"])]);
    await shop.delete("customers", id);
  }
  for (const id of ["", ".", ".."]) await assert.rejects(shop.get("customers", id), RangeError);
});

test("a refusal names the locations of errors", async () => {
  await assert.rejects(shop.put("products", "x", { name: "X", stock: "many" }), (error) => {
    assert.deepEqual(error.locations.map(({ pointer }) => pointer), ["/stock"]);
    return refused("invalid")(error);
  });
  await assert.rejects(shop.update("products", "lamp", { stock: { inc: -13 } }), refused("operator-refused"));
});

test("iterate requests each page when it is needed", async () => {
  await shop.batch(Array.from({ length: 7 }, (_, i) => ({ op: "put", class: "customers", id: `c${i}`, body: { name: `${i}` } })));
  const ids = [];
  for await (const { id } of shop.iterate("customers", { order: [["name", "desc"]], limit: 3 })) ids.push(id);
  assert.deepEqual(ids, ["c6", "c5", "c4", "c3", "c2", "c1", "c0"]);
  const filter = { and: [{ ge: ["name", "2"] }, { lt: ["name", "4"] }] };
  const { items, next } = await shop.query("customers", { filter }, { freshness: { consistency: "strong" } });
  assert.deepEqual([items.map(({ id }) => id).sort(), next], [["c2", "c3"], null]);
});

test("an object is upserted by a unique key", async () => {
  const key = { email: "ada+x@example.org" };
  const { value } = await shop.patchBy("accounts", key, { tenant: "t", number: "1.50" });
  const update = await shop.updateBy("accounts", { tenant: "t", number: "1.5" }, { visits: { inc: 1 } });
  assert.deepEqual(update.value, { id: value.id, visits: 1 });
  await assert.rejects(shop.patchBy("accounts", { tenant: "t" }, { visits: 1 }), { kind: "invalid" });
  assert.equal((await shop.get("accounts", value.id)).value.email, key.email);
});

test("objects that meet a condition are written independently", async () => {
  const put = (i) => ({ op: "put", class: "products", id: `w${i}`, body: { name: `w${i}`, price: `${1000 + i}`, stock: i % 2 } });
  await shop.batch(Array.from({ length: 4 }, (_, i) => put(i)));
  const expensive = { between: ["price", "1000", "1002"] };
  const dryRun = await shop.deleteWhere("products", expensive, { dryRun: true });
  assert.deepEqual(dryRun, { matched: 3, written: 0, failed: 0, sample: ["w0", "w1", "w2"], problems: [] });
  const patched = await shop.patchWhere("products", expensive, { name: "dear" });
  assert.deepEqual([patched.matched, patched.written, patched.failed], [3, 3, 0]);
  const sold = await shop.updateWhere("products", expensive, { stock: { inc: -1 } });
  assert.deepEqual([sold.written, sold.failed, sold.problems.map(({ id }) => id)], [1, 2, ["w0", "w2"]]);
  const rename = [{ op: "replace", path: "/name", value: "rare" }];
  assert.equal((await shop.patchWhere("products", expensive, rename)).written, 3);
  const rare = { eq: ["name", "rare"] };
  assert.equal((await shop.deleteWhere("products", rare, { allowScan: true })).written, 3);
  await shop.put("orders", "kept", {});
  await shop.deleteWhere("orders", "all");
  assert.deepEqual((await shop.query("orders")).items, []);
});

test("a batch has a result for each operation, a transaction is all or nothing", async () => {
  const [read, absent] = await shop.batch([
    { op: "get", class: "products", id: "lamp" },
    { op: "delete", class: "products", id: "none" },
  ]);
  assert.equal(read.body.name, "Lamp");
  assert.equal(absent.problem.kind, "not-found");
  const sell = [
    { op: "update", class: "products", id: "lamp", body: { stock: { inc: -1 } } },
    { op: "create", class: "orders", body: {} },
  ];
  const reads = [{ class: "products", id: "lamp", etag: read.etag }];
  assert.equal((await shop.commit(sell, { reads })).length, 2);
  await assert.rejects(shop.commit(sell, { reads }), refused("transaction-aborted"));
  assert.equal((await shop.get("products", "lamp")).value.stock, lamp.stock - 1);
});

/** Returns a fetch that loses the first replies, after the service has handled the requests. */
function lossyFetch(losses, keys = []) {
  return async (...request) => {
    const response = await fetch(...request);
    keys.push(request[1].headers["idempotency-key"]);
    if (keys.length > losses) return response;
    await response.arrayBuffer();
    throw new TypeError("the reply was lost");
  };
}

test("a write whose reply was lost takes effect once", async () => {
  const keys = [];
  const retries = { attempts: 3, firstPauseS: 0 };
  const client = new Client(url, database, { fetch: lossyFetch(2, keys), retries });
  const { id } = (await shop.create("products", { name: "Pen", stock: 5 })).value;
  const { value, replayed } = await client.update("products", id, { stock: { inc: 1 } });
  assert.deepEqual([value.stock, replayed, keys.length, new Set(keys).size], [6, true, 3, 1]);
  const created = await new Client(url, database, { fetch: lossyFetch(1), retries }).create("customers", { name: "Once" });
  assert.equal(created.replayed, true);
  const customers = await shop.query("customers", { filter: { eq: ["name", "Once"] } });
  assert.equal(customers.items.length, 1);
  await assert.rejects(new Client(url, database, { fetch: lossyFetch(9), retries }).get("products", id), Unreachable);
});

test("a failed write is repeated under the key of its error", async () => {
  await shop.put("products", "pen", { name: "Pen", stock: 5 });
  const client = new Client(url, database, { fetch: lossyFetch(1), retries: { attempts: 1 } });
  const sell = (options) => client.update("products", "pen", { stock: { inc: -1 } }, options);
  const { idempotencyKey } = await sell().catch((error) => error);
  const { value, replayed } = await sell({ idempotencyKey });
  assert.deepEqual([value.stock, replayed], [4, true]);
  await shop.delete("products", "pen");
});

/** Returns a fetch whose first stream is interrupted after its first change. */
function interruptedFetch() {
  let streams = 0;
  return async (...request) => {
    const response = await fetch(...request);
    streams += 1;
    if (streams > 1 || !response.ok) return response;
    const interruption = new TransformStream({
      transform(chunk, controller) {
        controller.enqueue(chunk);
        if (new TextDecoder().decode(chunk).includes("\ndata:")) controller.error(new TypeError("cut"));
      },
    });
    return new Response(response.body.pipeThrough(interruption), response);
  };
}

test("the feed resumes after a lost connection", async () => {
  await shop.put("orders", "first", {});
  const client = new Client(url, database, { fetch: interruptedFetch() });
  const objects = new Set();
  let position;
  for await (const change of client.changes({ className: "orders", after: "beginning" })) {
    if (!objects.has("first") && change.object === "first") await shop.put("orders", "second", {});
    objects.add(change.object);
    position = change.position;
    if (change.object === "second") break;
  }
  assert(objects.has("first"));
  await shop.put("orders", "third", {});
  for await (const change of shop.changes({ className: "orders", after: position })) {
    assert.equal(change.object, "third");
    break;
  }
});

/** Returns a fetch through a gateway, which itself answers with each of `refusals` first. */
function behindGateway(refusals) {
  return async (...request) => {
    const [status, body] = refusals.shift() ?? [];
    return status === undefined ? fetch(...request) : new Response(body, { status });
  };
}

test("the feed resumes when a gateway reaches the service again", async () => {
  await shop.put("customers", "fed", { name: "Fed" });
  const first = async (refusals, options) => {
    const client = new Client(url, database, { fetch: behindGateway(refusals) });
    for await (const change of client.changes({ className: "customers", after: "beginning", ...options })) return change;
  };
  const refusals = [[502, "<html>"], [504, ""], [408, ""], [502, '{"type": "/problems/bad-gateway"}']];
  assert.equal((await first(refusals)).class, "customers");
  assert.deepEqual(refusals, []);
  const outage = Array(9).fill([504, "<html>"]);
  await assert.rejects(first(outage, { reconnects: 2 }), { status: 504 });
  assert.equal(outage.length, 6);
  await assert.rejects(first([[500, "<html>"]]), { status: 500 });
  await shop.delete("customers", "fed");
});

test("invalid feeds are refused, and an aborted feed ends", async () => {
  const next = (options) => shop.changes(options).next();
  await assert.rejects(next({ className: "toys" }), refused("not-found"));
  await assert.rejects(next({ after: "x" }), refused("invalid"));
  const unreachable = new Client("http://127.0.0.1:1", database);
  await assert.rejects(unreachable.changes({ reconnects: 0 }).next(), Unreachable);
  const controller = new AbortController();
  const pending = shop.changes({ signal: controller.signal }).next();
  controller.abort();
  assert.deepEqual(await pending, { value: undefined, done: true });
});

test("a client can be pinned to a version of the schema", async () => {
  const pinned = new Client(url, database, { schemaVersion: 1, headers: { "x-request-id": "pinned" } });
  await pinned.put("products", "desk", lamp);
  assert.deepEqual((await pinned.get("products", "desk")).value, { id: "desk", ...lamp });
  const newer = new Client(url, database, { schemaVersion: 99 });
  await assert.rejects(newer.get("products", "desk"), refused("invalid"));
});
