// The golden vectors, which every implementation is tested with.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { positions, readFilter, canonicalQuery } from "../../../../sketch/js/portolan.mjs";

const vectors = JSON.parse(readFileSync(new URL("../../../unit/sketch/golden_vectors.json", import.meta.url), "utf8"));
const bytes = (base64) => Uint8Array.from(Buffer.from(base64, "base64")).buffer;
const keyOf = (told) => (typeof told === "string" ? told : told.repeat.repeat(told.times));

test("keys have the bits that they should have", () => {
  assert.ok(vectors.positions.length > 100);
  for (const { key, m, k, seed, positions: bits } of vectors.positions)
    assert.deepEqual(positions(keyOf(key), { m, k, seed }), bits, JSON.stringify(key));
});

test("filters say what they should say", () => {
  assert.ok(vectors.documents.length > 0);
  for (const { binary, json, holds, lacks } of vectors.documents) {
    const filter = readFilter(bytes(binary));
    assert.deepEqual(filter.groups, json.map);
    assert.equal(filter.timeUs, json.time_us);
    assert.equal(filter.validForS, json.valid_for_ms / 1000);
    for (const key of holds) assert.ok(filter.has(keyOf(key)), key);
    for (const key of lacks) assert.ok(!filter.has(keyOf(key)), key);
  }
});

test("what is broken is taken for no filter", () => {
  assert.ok(vectors.broken.length > 0);
  for (const { why, binary } of vectors.broken)
    assert.throws(() => readFilter(bytes(binary)), undefined, why);
});

test("queries are spelled as they should be", () => {
  assert.ok(vectors.queries.length > 8);
  for (const { asked, spelled } of vectors.queries) assert.equal(canonicalQuery(asked), spelled, JSON.stringify(asked));
});
