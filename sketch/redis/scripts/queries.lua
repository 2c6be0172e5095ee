-- Query results: `queries` holds the keys of registered results, each with the number of its
-- registration. A result is registered while a cache may hold a fresh copy of it.

local steps = {}

-- Arguments: the registration sequence that the client knows. Returns the current one, the number
-- of queries, whether the following ones are all, and those that the client lacks, with their numbers.
steps.registrations = function(first)
  local known, sequence = tonumber(ARGV[first]), registrations
  local count = call('ZCARD', QUERIES)
  if known == sequence then return { sequence, count, 0, {} } end
  local complete = known == 0 or known > sequence
  local from = complete and '-inf' or '(' .. ARGV[first]
  local newer = call('ZRANGEBYSCORE', QUERIES, from, '+inf', 'WITHSCORES')
  return { sequence, count, complete and 1 or 0, newer }
end

-- All current copies in caches are stale; later ones are registered again. Arguments: pairs of key,
-- packed positions.
steps.invalidate_results = function(first, last)
  for at = first, last, 2 do
    local key = ARGV[at]
    local expires = tonumber(call('ZSCORE', COPIES, key) or 0)
    call('ZREM', QUERIES, key)
    if expires > now then
      call('ZADD', STALE, 'GT', expires, key)
      enter(key, ARGV[at + 1])
      if AGAIN_US then purges().owe(key) end
    end
  end
  return 1
end

-- Whether writes may be pending whose acknowledgement ignores the registrations: writes that began
-- before a result was requested. While results are requested, and as long as a copy of one may be
-- fresh, no lease is cached; `last_lease` is the end of the last lease from before.
-- Writers that have cached leases are notified of the first request.
local function has_unaware_writes(ttl)
  if not requested then
    call('HSET', META, 'last_lease', call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')[2] or 0)
    redis.pcall('PUBLISH', PENDING, '')
  end
  requested = math.max(requested or 0, now + REQUESTED_US, now + LAYERS * ttl + MARGIN_US)
  call('HSET', META, 'requested', requested)
  return call('ZCOUNT', LEASES, '-inf', call('HGET', META, 'last_lease')) > 0
end

-- Arguments: schema; TTL of the response; key of a query. Atomically registers the query and returns
-- the granted TTL, so that a query is registered wherever a copy may be; -1: another schema was
-- adopted.
steps.report_query = function(first, last)
  if ARGV[first] ~= (call('HGET', META, 'schema') or '') then return -1 end
  if has_unaware_writes(tonumber(ARGV[first + 1])) then return 0 end
  local key = ARGV[last]
  local known = call('ZSCORE', QUERIES, key)
  if not known then
    local paused = tonumber(call('HGET', META, 'registration_paused') or 0)
    if now < paused or call('ZCARD', QUERIES) >= QUERIES_MOST then return 0 end
  end
  local ttl = reads().report_read(first + 1, last)[1]
  call('HDEL', VERSIONS, key)
  if ttl > 0 and not known then
    registrations = call('HINCRBY', META, 'registrations', 1)
    call('ZADD', QUERIES, registrations, key)
  end
  return ttl
end

return steps
