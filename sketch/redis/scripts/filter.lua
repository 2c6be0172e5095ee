-- The keys in the filter: `members`, each with its packed bit positions, a count for each position,
-- and the bits. A key enters at a write, and leaves once its copies have expired and no write to it
-- is pending.

local flipped = false

-- Adds to the counts of a key's positions; a bit whose count has become `edge` is set to it.
local function count(packed, by, edge)
  local places = { struct.unpack(PLACES, packed) }
  local counting, setting = { 'BITFIELD', COUNTS }, { 'BITFIELD', BITS }
  for i = 1, HASHES do
    for _, word in ipairs({ 'INCRBY', 'u32', '#' .. places[i], by }) do
      counting[#counting + 1] = word
    end
  end
  for i, number in ipairs(call(unpack(counting))) do
    if number == edge then
      for _, word in ipairs({ 'SET', 'u1', places[i], edge }) do setting[#setting + 1] = word end
    end
  end
  if #setting > 2 then
    call(unpack(setting))
    flipped = true
  end
end

local function enter(key, packed)
  if call('HSETNX', MEMBERS, key, packed) == 1 then count(packed, 1, 1) end
end

local function leave(key)
  local packed = call('HGET', MEMBERS, key)
  if not packed then return end
  call('HDEL', MEMBERS, key)
  count(packed, -1, 0)
end

-- Removes expired keys, at most `most` of either kind. The purges owed of a key end with its last
-- copy; after a loss, not before all copies that may exist have expired.
local function expire(most)
  local stale = call('ZRANGEBYSCORE', STALE, '-inf', now, 'LIMIT', 0, most)
  for _, key in ipairs(stale) do
    call('ZREM', STALE, key)
    if call('HEXISTS', PENDING, key) == 0 then leave(key) end
  end
  local expired = call('ZRANGEBYSCORE', COPIES, '-inf', now, 'LIMIT', 0, most)
  for _, key in ipairs(expired) do
    call('ZREM', COPIES, key)
    call('HDEL', VERSIONS, key)
    if AGAIN_US and now >= saturated and call('ZREM', PURGES, key) == 1 then
      call('HDEL', OWED, key)
    end
    if string.find(key, '//', 1, true) then call('ZREM', QUERIES, key) end
  end
end
