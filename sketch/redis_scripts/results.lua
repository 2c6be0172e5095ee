local steps = {}

-- Arguments: schema; life of the answer; key of a query. Registers the query and answers the life granted, in
-- one step, so that a query is registered wherever a copy may be; -1: another schema was adopted.
steps.query = function(first, last)
  if ARGV[first] ~= (call('HGET', META, 'schema') or '') then return -1 end
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
