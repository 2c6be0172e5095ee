-- Writes: `writes` holds for each token its keys, each with whether caches may hold it; `pending`
-- for each key the count of its writes (see CONCURRENT, CONTENDED); `leases` when a write counts as
-- orphaned. An entry of `versions` is 'v<version>'; 'f<token>': to be filled; while writes are
-- pending, internally, 'p<version>': the highest version that they made, or 'x': one made an unknown
-- version.

local steps = {}
local PAUSE_US = 100000

-- Whether a lease may be cached after its write is acknowledged: no result was requested recently.
local function is_lease_cacheable()
  if requested and now >= requested then
    call('HDEL', META, 'requested')
    requested = false
  end
  return not requested
end

-- Arguments: token; pairs of key, packed positions. Returns for each key whether caches may hold
-- it, the registration sequence, and whether the lease may be cached. A repeated token counts once.
steps.begin = function(first, last)
  local token, write, held = ARGV[first], {}, {}
  if call('ZADD', LEASES, 'NX', now + LEASE_US, token) == 0 then
    write = cmsgpack.unpack(call('HGET', WRITES, token))
    for i = 1, #write, 2 do held[write[i]] = write[i + 1] end
  end
  for at = first + 1, last, 2 do
    local key = ARGV[at]
    if not held[key] then
      local known = call('ZSCORE', COPIES, key)
      local expires = tonumber(known or 0)
      if expires > now then -- a pending write alone, of a key that no cache can hold, sets no bits
        call('ZADD', STALE, 'GT', expires, key)
        enter(key, ARGV[at + 1])
      end
      local count = call('HINCRBY', PENDING, key, 1) % CONTENDED
      if count > 1 and count < CONCURRENT then call('HINCRBY', PENDING, key, CONCURRENT) end
      if known then call('HDEL', VERSIONS, key) end
      held[key] = (expires > now or now < saturated) and 1 or 0
      write[#write + 1] = key
      write[#write + 1] = held[key]
    end
  end
  call('HSET', WRITES, token, cmsgpack.pack(write))
  local result = {}
  for at = first + 1, last, 2 do result[#result + 1] = held[ARGV[at]] end
  result[#result + 1] = registrations
  result[#result + 1] = is_lease_cacheable() and 1 or 0
  return result
end

-- Records the version that a write made, or keeps it internal while other writes are pending.
-- Versions are stored only for keys that caches may hold, so none is of a cached lease, under which
-- the last acknowledged write need not be the last write.
local function record_version(key, version, pending)
  local expires = call('ZSCORE', COPIES, key)
  if not expires then return end
  if tonumber(expires) <= now then
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

-- Removes a write of a key from its count; after the last one the key may leave the filter. Returns
-- whether other writes are pending, and whether a read was refused meanwhile.
local function count_off(key)
  local count = call('HINCRBY', PENDING, key, -1)
  if count % CONCURRENT > 0 then return true, count >= CONTENDED end
  call('HDEL', PENDING, key)
  if call('HEXISTS', MEMBERS, key) == 1 and tonumber(call('ZSCORE', STALE, key) or 0) <= now then
    call('ZREM', STALE, key)
    leave(key)
  end
  return false, count >= CONTENDED
end

-- Ends a write; its versions follow from `first` on, in pairs of key, version. Returns 1, or 4 if a
-- read of one of its keys was refused meanwhile.
local function end_write(token, write, first, last)
  local versions, result = {}, 1
  call('HDEL', WRITES, token)
  call('ZREM', LEASES, token)
  for at = first, last, 2 do versions[ARGV[at]] = ARGV[at + 1] end
  for i = 1, #write, 2 do
    local key = write[i]
    local pending, contended = count_off(key)
    record_version(key, versions[key], pending)
    if contended then result = 4 end
    if AGAIN_US and write[i + 1] == 1 then purges().owe(key) end
  end
  return result
end

-- Arguments: token; pairs of key, version. Returns 0 if the token is unknown.
steps['end'] = function(first, last)
  local packed = call('HGET', WRITES, ARGV[first])
  if not packed then return 0 end
  return end_write(ARGV[first], cmsgpack.unpack(packed), first + 1, last)
end

local function is_concurrent(write)
  for i = 1, #write, 2 do
    if tonumber(call('HGET', PENDING, write[i]) or 0) % CONTENDED > CONCURRENT then return true end
  end
  return false
end

-- Ends a write if its writer knows all registered queries, and, if required, if no other write of
-- its keys was pending meanwhile. Arguments: token; the registration sequence it knows; '1': no
-- other write; '1': pause registrations for a moment if it does not know all; pairs of key, version.
-- Returns 1 or 4 if the write has ended, 2 if other queries are registered, 3 if another write was
-- pending.
steps.close = function(first, last)
  local packed = call('HGET', WRITES, ARGV[first])
  if not packed then return 1 end
  if tonumber(ARGV[first + 1]) ~= registrations then
    if ARGV[first + 3] == '1' then call('HSET', META, 'registration_paused', now + PAUSE_US) end
    return 2
  end
  local write = cmsgpack.unpack(packed)
  if ARGV[first + 2] == '1' and is_concurrent(write) then return 3 end
  return end_write(ARGV[first], write, first + 4, last)
end

-- Arguments: how many of the first to skip; the limit. Returns lists of token, keys.
steps.orphans = function(first, last)
  local orphans = {}
  local tokens = call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', ARGV[first], ARGV[last])
  for i, token in ipairs(tokens) do
    local write = cmsgpack.unpack(call('HGET', WRITES, token))
    orphans[i] = { token }
    for at = 1, #write, 2 do table.insert(orphans[i], write[at]) end
  end
  return orphans
end

return steps
