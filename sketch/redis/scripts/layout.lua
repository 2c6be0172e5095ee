-- The meaning of a partition's keys, and its new generation when the meaning or the server changes.

local steps = {}

-- Starts a new generation: copies are forgotten, known writes stay pending.
local function reset(lost)
  uncacheable, saturated = lost and now + LEASE_US or 0, lost and now + longest or 0
  registrations = now
  call('UNLINK', COPIES, STALE, MEMBERS, COUNTS, BITS, VERSIONS, QUERIES)
  call('SETBIT', BITS, FILTER_BITS - 1, 0)
  call('HSET', META, 'run_id', run_id, 'generation', nonce, 'revision', 1,
    'uncacheable', uncacheable, 'saturated', saturated, 'registrations', registrations)
end

-- Starts a partition that is of another run, or of none.
steps.lost = function()
  call('HDEL', META, 'layout', 'schema') -- the last layout may have been lost
  reset(claim ~= 'new')
end

steps.invalidate = function()
  reset(true)
  return 1
end

-- Removes all of a partition, unless a write to it is pending or a copy of it may be fresh. Its owed
-- purges are of expired copies. Returns whether it is removed.
steps.remove = function()
  local last = tonumber(call('ZREVRANGE', COPIES, 0, 0, 'WITHSCORES')[2] or 0)
  if now < saturated or now < last or call('EXISTS', LEASES) == 1 then return 0 end
  call('UNLINK', unpack(KEYS))
  flipped = false -- no revision remains
  return 1
end

-- Returns the meaning of the partition's keys.
steps.layout = function()
  return call('HGET', META, 'layout') or ''
end

-- Arguments: layout before; after; '1': reset; schema that registrations must name. If no layout is
-- known, copies may rest on any. Returns 0 if the current layout is another one.
steps.adopt = function(first)
  local before = ARGV[first]
  if before ~= steps.layout() then return 0 end
  if ARGV[first + 2] == '1' or (before == '' and call('EXISTS', COPIES) == 1) then reset(true) end
  call('HSET', META, 'layout', ARGV[first + 1], 'schema', ARGV[first + 3])
  return 1
end

return steps
