local steps = {}

-- Whether writes may be pending that are acknowledged without a look at what is registered: those that
-- began before anybody asked for a result. While results are asked for, and as long as one may be
-- alive, no mark lingers; `before` has the lease of the last write that began until then. Whoever has
-- marks that linger hears of the first who asks.
local function lingering(ttl)
  if not asked then
    call('HSET', META, 'before', call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')[2] or 0)
    redis.pcall('PUBLISH', MARKS, '')
  end
  asked = math.max(asked or 0, now + ASKED_US, now + LAYERS * ttl + MARGIN_US)
  call('HSET', META, 'asked', asked)
  return call('ZCOUNT', LEASES, '-inf', call('HGET', META, 'before')) > 0
end

-- Arguments: schema; life of the answer; key of a query. Registers the query and answers the life granted, in
-- one step, so that a query is registered wherever a copy may be; -1: another schema was adopted.
steps.query = function(first, last)
  if ARGV[first] ~= (call('HGET', META, 'schema') or '') then return -1 end
  if lingering(tonumber(ARGV[first + 1])) then return 0 end
  local key = ARGV[last]
  local known = call('ZSCORE', QUERIES, key)
  if not known then
    local quiet = tonumber(call('HGET', META, 'quiet') or 0)
    if now < quiet or call('ZCARD', QUERIES) >= QUERIES_MOST then return 0 end
  end
  local ttl = reads().read(first + 1, last)[1]
  call('HDEL', VERSIONS, key)
  if ttl > 0 and not known then
    registrations = call('HINCRBY', META, 'registrations', 1)
    call('ZADD', QUERIES, registrations, key)
  end
  return ttl
end

return steps
