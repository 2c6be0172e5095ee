-- Writes: `writes` holds for each token its keys, each with whether caches may hold it; `marks`
-- for each key how many writes of it are pending, and CONTESTED more if there were several at once, WANTED more if a read was
-- refused meanwhile; `leases` when a write is taken for orphaned.
-- An entry of `versions` is 'v<version>'; 'f<token>': to be filled; while writes are pending, out
-- of sight, 'p<version>': the highest that one of them made, or 'x': one made a version unknown.

local steps = {}
local CONTESTED, QUIET_US = 2 ^ 20, 100000

-- Whether marks may stay after their writes are acknowledged: nobody has asked for results lately.
local function lingers()
  if asked and now >= asked then
    call('HDEL', META, 'asked')
    asked = false
  end
  return not asked
end

-- Arguments: token; pairs of key, packed positions. Answers for each key whether it is held, the
-- mark of registrations, and whether the mark may linger.
steps.begin = function(first, last)
  local token, write, held = ARGV[first], {}, {}
  if call('ZADD', LEASES, 'NX', now + LEASE_US, token) == 0 then
    write = cmsgpack.unpack(call('HGET', WRITES, token))
    for i = 1, #write, 2 do held[write[i]] = write[i + 1] end
  end
  for at = first + 1, last, 2 do
    local key = ARGV[at]
    if not held[key] then
      local known = call('ZSCORE', HANDED, key)
      local handed = tonumber(known or 0)
      if handed > now then -- a pending write alone, of a key that no cache can hold, sets no bits
        call('ZADD', STALE, 'GT', handed, key)
        enter(key, ARGV[at + 1])
      end
      local marks = call('HINCRBY', MARKS, key, 1) % WANTED
      if marks > 1 and marks < CONTESTED then call('HINCRBY', MARKS, key, CONTESTED) end
      if known then call('HDEL', VERSIONS, key) end
      held[key] = (handed > now or now < saturated) and 1 or 0
      write[#write + 1] = key
      write[#write + 1] = held[key]
    end
  end
  call('HSET', WRITES, token, cmsgpack.pack(write))
  local answer = {}
  for at = first + 1, last, 2 do answer[#answer + 1] = held[ARGV[at]] end
  answer[#answer + 1] = registrations
  answer[#answer + 1] = lingers() and 1 or 0
  return answer
end

-- Sets the version that a write made, or keeps it out of sight while others are pending. Versions
-- are kept for keys that caches may hold, no others: so none is of a mark that lingers, under which
-- the last write to be answered need not have been the last one.
local function made(key, version, pending)
  local handed = call('ZSCORE', HANDED, key)
  if not handed then return end
  if tonumber(handed) <= now then
    call('HDEL', VERSIONS, key)
    return
  end
  local before = call('HGET', VERSIONS, key) or 'p0'
  local known = version and string.sub(before, 1, 1) == 'p'
  if known and tonumber(string.sub(before, 2)) > tonumber(version) then
    version = string.sub(before, 2)
  end
  if pending then
    call('HSET', VERSIONS, key, known and 'p' .. version or 'x')
  elseif known then
    call('HSET', VERSIONS, key, 'v' .. version)
  else
    call('HDEL', VERSIONS, key)
  end
end

-- Takes a write's mark off a key; the last one lets it leave the filter. Returns whether others are
-- pending, and whether somebody wanted to read it.
local function unmark(key)
  local marks = call('HINCRBY', MARKS, key, -1)
  if marks % CONTESTED > 0 then return true, marks >= WANTED end
  call('HDEL', MARKS, key)
  if call('HEXISTS', MEMBERS, key) == 1 and tonumber(call('ZSCORE', STALE, key) or 0) <= now then
    call('ZREM', STALE, key)
    leave(key)
  end
  return false, marks >= WANTED
end

-- Ends a write; the versions that it made follow from `first` on, in pairs of key, version. Answers
-- 1, or 4 if somebody wanted to read one of its keys.
local function ended(token, write, first, last)
  local versions, answer = {}, 1
  call('HDEL', WRITES, token)
  call('ZREM', LEASES, token)
  for at = first, last, 2 do versions[ARGV[at]] = ARGV[at + 1] end
  for i = 1, #write, 2 do
    local key = write[i]
    local pending, wanted = unmark(key)
    made(key, versions[key], pending)
    if wanted then answer = 4 end
    if AGAIN_US and write[i + 1] == 1 then purges().owe(key) end
  end
  return answer
end

-- Arguments: token; pairs of key, version. Answers 0 if the token is unknown.
steps['end'] = function(first, last)
  local packed = call('HGET', WRITES, ARGV[first])
  if not packed then return 0 end
  return ended(ARGV[first], cmsgpack.unpack(packed), first + 1, last)
end

local function contested(write)
  for i = 1, #write, 2 do
    if tonumber(call('HGET', MARKS, write[i]) or 0) % WANTED > CONTESTED then return true end
  end
  return false
end

-- Ends a write if its writer knows all queries that are registered, and, should it ask for that, if
-- it was alone. Arguments: token; the mark it knows; '1': was it alone; '1': let nobody register for
-- a moment if it does not; pairs of key, version. Answers 1 or 4 if the write has ended, 2 if there
-- are others, 3 if it was not alone.
steps.close = function(first, last)
  local packed = call('HGET', WRITES, ARGV[first])
  if not packed then return 1 end
  if tonumber(ARGV[first + 1]) ~= registrations then
    if ARGV[first + 3] == '1' then call('HSET', META, 'quiet', now + QUIET_US) end
    return 2
  end
  local write = cmsgpack.unpack(packed)
  if ARGV[first + 2] == '1' and contested(write) then return 3 end
  return ended(ARGV[first], write, first + 4, last)
end

-- Arguments: how many at most. Answers lists of token, keys.
steps.orphans = function(first)
  local orphans = {}
  for i, token in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, ARGV[first])) do
    local write = cmsgpack.unpack(call('HGET', WRITES, token))
    orphans[i] = { token }
    for at = 1, #write, 2 do table.insert(orphans[i], write[at]) end
  end
  return orphans
end

return steps
