// The client's filter: decodes its binary form, and tests keys (docs/sketch-wire.md).

import { positions } from "./hash.mjs";
import { failure } from "./problems.mjs";

const MAGIC = 0x5074536b;
const VERSION_AND_FAMILY = 0x0101;
const HEADER_BYTES = 56;
const CHECKSUM_BYTES = 4;
const MAX_HASHES = 32;
const REVALIDATE_ALL = 1;
const MAX_MAP_BYTES = 2 ** 24;

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let i = 8; i--; ) crc = (crc >>> 1) ^ (crc & 1 && 0xedb88320);
  }
  return ~crc >>> 0;
}

/** Decodes a filter; throws if it is broken. */
export function readFilter(raw) {
  const bytes = new Uint8Array(raw);
  const view = new DataView(raw);
  const end = raw.byteLength - CHECKSUM_BYTES;
  const mapBytes = view.getUint32(52);
  const start = HEADER_BYTES + mapBytes;
  const k = bytes[6];
  const m = view.getUint32(12);
  const revalidateAll = bytes[7];
  // An unknown flag may change the meaning of the bits.
  const isKnown =
    view.getUint32(0) === MAGIC && view.getUint16(4) === VERSION_AND_FAMILY && revalidateAll <= REVALIDATE_ALL;
  const isWithinLimits = m && k && k <= MAX_HASHES && mapBytes <= MAX_MAP_BYTES;
  const isIntact = () => crc32(bytes.subarray(0, end)) === view.getUint32(end) && start + m / 8 === end;
  if (!isKnown || !isWithinLimits || !isIntact()) throw failure("a broken filter");
  const filter = {
    m,
    k,
    seed: view.getUint32(8),
    timeUs: Number(view.getBigUint64(16)),
    validForS: view.getUint32(24) / 1e3,
    generation: String(bytes.subarray(28, 44)),
    map: new TextDecoder().decode(bytes.subarray(HEADER_BYTES, start)),
  };
  const isSet = (bit) => bytes[start + (bit >> 3)] & (0x80 >> (bit & 7));
  filter.groups = JSON.parse(filter.map);
  filter.has = (key) => revalidateAll || positions(key, filter).every(isSet);
  return filter;
}
