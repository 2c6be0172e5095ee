-- The state of the partition. Except for the count of bits, its time does not grow with the keys.

local steps = {}

local function first(sorted)
  return call('ZRANGE', sorted, 0, 0, 'WITHSCORES')[2] or false
end

steps.state = function()
  local bytes = 0
  for _, key in ipairs(KEYS) do
    bytes = bytes + (call('MEMORY', 'USAGE', key, 'SAMPLES', 5) or 0)
  end
  local current = call('HMGET', META, 'generation', 'revision')
  return {
    current[1], tonumber(current[2]), call('HLEN', MEMBERS), call('BITCOUNT', BITS),
    call('ZCARD', COPIES), call('HLEN', WRITES), first(LEASES), saturated, uncacheable,
    call('ZCARD', PURGES), call('ZCOUNT', PURGES, '-inf', now), first(PURGES), bytes,
  }
end

return steps
