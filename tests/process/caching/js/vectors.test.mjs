// Tests against the golden vectors that all implementations share.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
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

/** Returns an empty filter whose map is `{}`, padded to `size` bytes. */
function filterWithMapOf(size) {
  const map = Buffer.alloc(size, " ");
  map.write("{");
  map.write("}", size - 1);
  const template = Buffer.from(vectors.documents[0].binary, "base64").subarray(0, 56);
  const header = Buffer.concat([template.subarray(0, 52), Buffer.alloc(4)]);
  header.writeUInt32BE(size, 52);
  const body = Buffer.concat([header, map, Buffer.alloc(header.readUInt32BE(12) / 8)]);
  const checksum = gzipSync(body, { level: 0 }).subarray(-8, -4).reverse(); // gzip ends with the same checksum
  return Uint8Array.from(Buffer.concat([body, checksum])).buffer;
}

test("a map is no longer than 16 MiB", () => {
  assert.deepEqual(readFilter(filterWithMapOf(2 ** 24)).groups, {});
  assert.throws(() => readFilter(filterWithMapOf(2 ** 24 + 1)), { message: /broken/ });
});

test("queries have the canonical form of the vectors", () => {
  assert.ok(vectors.queries.length > 8);
  for (const { parameters, canonical } of vectors.queries) assert.equal(canonicalQuery(parameters), canonical, JSON.stringify(parameters));
});
