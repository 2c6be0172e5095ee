-- Reads: `copies` holds the expiry of the last copy of each key.

local steps = {}
local SLICE, room = 1000, nil

-- Returns the values of the fields ARGV[first..last] of a hash.
local function values(hash, first, last)
  local texts = {}
  for at = first, last, SLICE do
    local fields = { unpack(ARGV, at, math.min(last, at + SLICE - 1)) }
    for _, value in ipairs(call('HMGET', hash, unpack(fields))) do texts[#texts + 1] = value end
  end
  return texts
end

-- Records that a read of a key is refused because a write of it is pending. If no cache can hold the
-- key, the write's lease may be cached: its writer is notified at once, if this client may publish.
local function note_contention(key)
  call('HINCRBY', PENDING, key, CONTENDED)
  if tonumber(call('ZSCORE', COPIES, key) or 0) <= now then redis.pcall('PUBLISH', PENDING, key) end
end

-- Whether writes of keys are pending; their writers are also notified when they end.
local function is_pending(first, last)
  local pending = false
  for i, count in ipairs(values(PENDING, first, last)) do
    if count then
      pending = true
      if tonumber(count) < CONTENDED then note_contention(ARGV[first + i - 1]) end
    end
  end
  return pending
end

-- Whether caches would hold copies of more keys than the limit allows.
local function is_full(first, last)
  room = room or KEYS_MOST - call('ZCARD', COPIES)
  if last - first < room then return false end
  local new = 0
  for at = first, last do
    if not call('ZSCORE', COPIES, ARGV[at]) then new = new + 1 end
  end
  return new > math.max(room, 0)
end

-- Arguments: TTL of the response; keys. Returns the granted TTL, and each key's entry.
steps.report_read = function(first, last)
  local ttl, entries = tonumber(ARGV[first]), values(VERSIONS, first + 1, last)
  first = first + 1
  if ttl <= 0 or now < uncacheable or is_pending(first, last) or is_full(first, last) then
    table.insert(entries, 1, 0)
    return entries
  end
  local expires = now + LAYERS * ttl + MARGIN_US
  for i, entry in ipairs(entries) do
    local key = ARGV[first + i - 1]
    room = room - call('ZADD', COPIES, 'GT', expires, key)
    if not entry then
      entries[i] = 'f' .. nonce .. first
      call('HSET', VERSIONS, key, entries[i])
    end
  end
  table.insert(entries, 1, ttl)
  return entries
end

-- Arguments: tokens, separated by commas; pairs of key, version. The begin of a write removes its
-- keys' tokens, so if a token still exists, the version that was read is the last one.
steps.fill = function(first, last)
  local tokens = {}
  for token in string.gmatch(ARGV[first], '[^,]+') do tokens['f' .. token] = true end
  for at = first + 1, last, 2 do
    local entry = call('HGET', VERSIONS, ARGV[at])
    if entry and tokens[entry] then call('HSET', VERSIONS, ARGV[at], 'v' .. ARGV[at + 1]) end
  end
  return 1
end

return steps
