-- Reads: `handed` holds for each key the latest end of life of any copy.

local steps = {}
local SLICE, room = 1000, nil

-- Returns the values of the fields ARGV[first..last] of a hash.
local function values(hash, first, last)
  local found = {}
  for at = first, last, SLICE do
    local fields = { unpack(ARGV, at, math.min(last, at + SLICE - 1)) }
    for _, value in ipairs(call('HMGET', hash, unpack(fields))) do found[#found + 1] = value end
  end
  return found
end

-- Notes that somebody wanted to read a key while a write of it was pending. Where no cache can hold it, its
-- mark may linger: whoever made it hears of that at once, as far as this client may publish at all.
local function wanted(key)
  call('HINCRBY', MARKS, key, WANTED)
  if tonumber(call('ZSCORE', HANDED, key) or 0) <= now then redis.pcall('PUBLISH', MARKS, key) end
end

-- Whether writes of keys are pending; their writers hear at the end, too, that somebody wanted to read.
local function pending(first, last)
  local found = false
  for i, marks in ipairs(values(MARKS, first, last)) do
    if marks then
      found = true
      if tonumber(marks) < WANTED then wanted(ARGV[first + i - 1]) end
    end
  end
  return found
end

-- Whether caches would hold copies of more keys than may be kept account of.
local function crowded(first, last)
  room = room or KEYS_MOST - call('ZCARD', HANDED)
  if last - first < room then return false end
  local new = 0
  for at = first, last do
    if not call('ZSCORE', HANDED, ARGV[at]) then new = new + 1 end
  end
  return new > math.max(room, 0)
end

-- Arguments: life of the answer; keys. Answers the life granted, and each key's entry.
steps.read = function(first, last)
  local ttl, entries = tonumber(ARGV[first]), values(VERSIONS, first + 1, last)
  first = first + 1
  if ttl <= 0 or now < uncacheable or pending(first, last) or crowded(first, last) then
    table.insert(entries, 1, 0)
    return entries
  end
  local alive = now + LAYERS * ttl + MARGIN_US
  for i, entry in ipairs(entries) do
    local key = ARGV[first + i - 1]
    room = room - call('ZADD', HANDED, 'GT', alive, key)
    if not entry then
      entries[i] = 'f' .. nonce .. first
      call('HSET', VERSIONS, key, entries[i])
    end
  end
  table.insert(entries, 1, ttl)
  return entries
end

-- Arguments: tokens, separated by commas; pairs of key, version. A write's beginning has removed its
-- keys' tokens, so a token that is still there tells that the version read is the last one.
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
