-- What a partition's keys stand for, and its new generation when that or the server is another.

local steps = {}

-- Begins another generation: copies are forgotten. Writes that are known stay pending.
local function reset(lost)
  uncacheable, saturated = lost and now + LEASE_US or 0, lost and now + longest or 0
  registrations = now
  call('UNLINK', COPIES, STALE, MEMBERS, COUNTS, BITS, VERSIONS, QUERIES)
  call('SETBIT', BITS, FILTER_BITS - 1, 0)
  call('HSET', META, 'run_id', run_id, 'generation', nonce, 'revision', 1,
    'uncacheable', uncacheable, 'saturated', saturated, 'registrations', registrations)
end

-- Begins a partition that is of another run, or of none.
steps.lost = function()
  call('HDEL', META, 'layout', 'schema') -- the last one may be among what was lost
  reset(claim ~= 'new')
end

steps.invalidate = function()
  reset(true)
  return 1
end

-- Removes all of a partition, unless a write to it is pending or a copy of it may be fresh. Purges
-- that it still owes are of copies that have expired. Returns whether there is nothing of it.
steps.remove = function()
  local last = tonumber(call('ZREVRANGE', COPIES, 0, 0, 'WITHSCORES')[2] or 0)
  if now < saturated or now < last or call('EXISTS', LEASES) == 1 then return 0 end
  call('UNLINK', unpack(KEYS))
  flipped = false -- nothing is left to have a revision
  return 1
end

-- Returns what the keys of the partition stand for.
steps.layout = function()
  return call('HGET', META, 'layout') or ''
end

-- Arguments: layout before; after; '1': reset; schema that registrations have to name. Where no
-- layout is known, copies may rest on any. Returns 0 if the layout before is another one.
steps.adopt = function(first)
  local before = ARGV[first]
  if before ~= steps.layout() then return 0 end
  if ARGV[first + 2] == '1' or (before == '' and call('EXISTS', COPIES) == 1) then reset(true) end
  call('HSET', META, 'layout', ARGV[first + 1], 'schema', ARGV[first + 3])
  return 1
end

return steps
