-- A part's life: what becomes of it when its server, or what its keys stand for, is another one.

local steps = {}

-- What was handed out is forgotten. Writes that are known stay pending until they are ended.
local function begin_anew(lost)
  uncacheable, saturated = lost and now + LEASE_US or 0, lost and now + longest or 0
  registrations = now
  call('UNLINK', HANDED, STALE, MEMBERS, COUNTS, BITS, VERSIONS, QUERIES)
  call('SETBIT', BITS, FILTER_BITS - 1, 0)
  call('HSET', META, 'life', life, 'incarnation', nonce, 'generation', 1,
    'uncacheable', uncacheable, 'saturated', saturated, 'registrations', registrations)
end

-- Begins a part that is of another life, or of none.
steps.lost = function()
  call('HDEL', META, 'layout', 'schema') -- the last one may be among what was lost
  begin_anew(sure ~= 'fresh')
end

steps.renew = function()
  begin_anew(true)
  return 1
end

-- Answers what the keys of the part stand for.
steps.layout = function()
  return call('HGET', META, 'layout') or ''
end

-- Arguments: layout before; after; '1': begin anew; schema that registrations have to name. Where
-- no layout is known, copies may rest on any. Answers 0 if the layout before is another one.
steps.adopt = function(first)
  local before = ARGV[first]
  if before ~= steps.layout() then return 0 end
  if ARGV[first + 2] == '1' or (before == '' and call('EXISTS', HANDED) == 1) then begin_anew(true) end
  call('HSET', META, 'layout', ARGV[first + 1], 'schema', ARGV[first + 3])
  return 1
end

return steps
