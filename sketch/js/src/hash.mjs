// The hash family of the filter: MurmurHash3 x86 128, as in docs/sketch-wire.md.

const { imul } = Math;
const MULTIPLIERS = [0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93];
const ADDENDS = [0x561ccd1b, 0x0bcaa747, 0x96cd1c35, 0x32ac3b17];
const BLOCK_BYTES = 16;

const rotateLeft = (word, bits) => (word << bits) | (word >>> (32 - bits));

const finalise = (word) => {
  word = imul(word ^ (word >>> 16), 0x85ebca6b);
  word = imul(word ^ (word >>> 13), 0xc2b2ae35);
  return word ^ (word >>> 16);
};

const mix = ([a, b, c, d]) => [(a += b + c + d), a + b, a + c, a + d];

/** Returns the first two words of a key's hash. */
function hashWords(key, seed) {
  const bytes = new TextEncoder().encode(key);
  const { length } = bytes;
  const padded = new Uint8Array((length + BLOCK_BYTES - 1) & -BLOCK_BYTES);
  padded.set(bytes);
  const view = new DataView(padded.buffer);
  const state = [seed, seed, seed, seed];
  for (let start = 0; start < padded.length; start += BLOCK_BYTES)
    for (let i = 0; i < 4; i++) {
      const word = imul(view.getUint32(start + 4 * i, true), MULTIPLIERS[i]);
      state[i] ^= imul(rotateLeft(word, 15 + i), MULTIPLIERS[(i + 1) & 3]);
      // The padded tail is only XORed in.
      if (start + BLOCK_BYTES <= length)
        state[i] = imul(rotateLeft(state[i], 19 - 2 * i) + state[(i + 1) & 3], 5) + ADDENDS[i];
    }
  return mix(mix(state.map((word) => word ^ length)).map(finalise));
}

/** Returns a key's bit positions in a filter of `m` bits: `k` numbers below `m`. */
export function positions(key, { m, k, seed }) {
  const [first, second] = hashWords(key, seed);
  const stride = (second >>> 1) | 0x40000001;
  const scaled = (i) => Number((BigInt((first + i * stride) >>> 0) * BigInt(m)) >> 32n);
  return Array.from({ length: k }, (_, i) => scaled(i));
}
