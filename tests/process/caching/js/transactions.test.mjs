// Transactions of the JavaScript client: cached reads, checked at the commit.
import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../../../../sketch/js/portolan.mjs";
import { transact } from "../../../../sketch/js/transactions.mjs";
import { Origin } from "./origin.mjs";

async function setUp() {
  const origin = new Origin();
  origin.objects.set("articles/a2", { title: "other", version: 1 });
  const { fetch, sleep } = origin;
  const client = await connect("http://origin", "news", {
    deltaS: 10, mode: "lazy", fetch, sleep, clock: () => origin.time,
  });
  const commits = () => origin.requests.filter(({ url }) => url.endsWith("/transactions")).length;
  return { origin, client, commits };
}

const noPause = async () => {};

test("a transaction reads copies and commits all writes, which its client sees at once", async () => {
  const { origin, client, commits } = await setUp();
  await client.get("articles", "a1");
  const result = await transact(client, async (t) => {
    const { value, source } = await t.get("articles", "a1");
    t.patch("articles", "a1", { title: "new" });
    t.put("articles", "a3", { title: "third" });
    t.delete("articles", "a2");
    assert.equal((await client.get("articles", "a1")).value.title, "old", "nothing is written yet");
    return [value.title, source];
  });
  assert.deepEqual(result, ["old", "own"]);
  assert.equal(commits(), 1);
  const { value, source } = await client.get("articles", "a1");
  assert.deepEqual([value.title, source], ["new", "origin"]);
  assert.ok(origin.objects.has("articles/a3") && !origin.objects.has("articles/a2"));
});

test("an outdated copy aborts a transaction, and the next attempt does not use it", async () => {
  const { origin, client, commits } = await setUp();
  await client.get("articles", "a1");
  await client.get("articles", "a2");
  origin.write("articles/a1", "theirs");
  const attempts = [];
  await transact(client, async (t) => {
    const reads = [await t.get("articles", "a1"), await t.get("articles", "a2")];
    attempts.push(reads.map(({ source }) => source));
    t.patch("articles", "a2", { title: `${reads[0].value.title}!` });
  }, { sleep: noPause });
  assert.deepEqual(attempts, [["own", "own"], ["origin", "origin"]], "a2 was to be written");
  assert.equal(origin.objects.get("articles/a2").title, "theirs!");
  assert.equal(commits(), 2);
});

test("attempts are bounded, and an aborted transaction has a reason", async () => {
  const { origin, client, commits } = await setUp();
  const conflicting = async (t) => {
    await t.get("articles", "a1");
    origin.write("articles/a1", "theirs");
  };
  await assert.rejects(transact(client, conflicting, { attempts: 3, sleep: noPause }), (error) => {
    assert.equal(error.kind, "transaction-aborted");
    assert.equal(error.problem.changed[0].id, "a1");
    return true;
  });
  assert.equal(commits(), 3);
});

test("failed work sends nothing, and neither does work without reads and writes", async () => {
  const { client, commits } = await setUp();
  const fail = async (t) => {
    t.patch("articles", "a1", { title: "new" });
    throw new TypeError();
  };
  await assert.rejects(transact(client, fail), TypeError);
  assert.equal(await transact(client, async () => 7), 7);
  assert.equal(commits(), 0);
});

test("the absence of an object is validated like a read", async () => {
  const { origin, client } = await setUp();
  const create = (t) => t.get("articles", "a9", { missingOk: true }).then(({ value }) => {
    if (value) return "found";
    origin.write("articles/a9", "theirs");
    t.put("articles", "a9", { title: "mine" });
    return "created";
  });
  assert.equal(await transact(client, create, { sleep: noPause }), "found");
  assert.equal(origin.objects.get("articles/a9").title, "theirs");
  await assert.rejects(transact(client, (t) => t.get("articles", "none")), { status: 404, kind: "not-found" });
});

test("a transaction reads a resource once, and returns a copy of its value", async () => {
  const { origin, client } = await setUp();
  const work = transact(client, async (t) => {
    const first = await t.get("articles", "a1");
    first.value.title = "scribbled";
    await client.patch("articles", "a1", { title: "new" });
    assert.equal((await t.get("articles", "a1")).value.title, "old");
  }, { attempts: 1 });
  await assert.rejects(work, { kind: "transaction-aborted" });
  assert.equal(origin.objects.get("articles/a1").title, "new");
});

test("unsupported operations of a transaction are refused at once", async () => {
  const { client } = await setUp();
  let transaction;
  await transact(client, async (t) => {
    transaction = t;
    t.delete("articles", "a1");
    assert.throws(() => t.patch("articles", "a1", {}), /written twice/);
    await assert.rejects(t.get("articles", "a1"), /after it was written/);
  });
  assert.throws(() => transaction.delete("articles", "a2"), /is over/);
  await assert.rejects(transaction.get("articles", "a1"), /is over/);
});
