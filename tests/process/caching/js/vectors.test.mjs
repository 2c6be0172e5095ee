// The golden vectors, which every implementation is tested with.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { positions, readFilter, canonicalQuery } from "../../../../sketch/js/portolan.mjs";

const vectors = JSON.parse(readFileSync(new URL("../../../unit/sketch/golden_vectors.json", import.meta.url), "utf8"));
const bytes = (base64) => Uint8Array.from(Buffer.from(base64, "base64")).buffer;
const keyOf = (entry) => (typeof entry === "string" ? entry : entry.repeat.repeat(entry.times));

test("keys have the positions of the vectors", () => {
  assert.ok(vectors.positions.length > 100);
  for (const { key, m, k, seed, positions: bits } of vectors.positions)
    assert.deepEqual(positions(keyOf(key), { m, k, seed }), bits, JSON.stringify(key));
});

test("filters are decoded as in the vectors", () => {
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

test("a broken filter is refused", () => {
  assert.ok(vectors.broken.length > 0);
  for (const { why, binary } of vectors.broken)
    assert.throws(() => readFilter(bytes(binary)), undefined, why);
});

test("queries have their canonical form", () => {
  assert.ok(vectors.queries.length > 8);
  for (const { parameters, canonical } of vectors.queries) assert.equal(canonicalQuery(parameters), canonical, JSON.stringify(parameters));
});
