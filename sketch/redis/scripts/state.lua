-- How the part is. Nothing here takes longer the more keys there are, but for counting the bits.

local steps = {}

local function first(sorted)
  return call('ZRANGE', sorted, 0, 0, 'WITHSCORES')[2] or false
end

steps.state = function()
  local bytes = 0
  for _, key in ipairs(KEYS) do
    bytes = bytes + (call('MEMORY', 'USAGE', key, 'SAMPLES', 5) or 0)
  end
  local is = call('HMGET', META, 'incarnation', 'generation')
  return {
    is[1], tonumber(is[2]), call('HLEN', MEMBERS), call('BITCOUNT', BITS), call('ZCARD', HANDED),
    call('HLEN', WRITES), first(LEASES), saturated, uncacheable,
    call('ZCARD', PURGES), call('ZCOUNT', PURGES, '-inf', now), first(PURGES), bytes,
  }
end

return steps
