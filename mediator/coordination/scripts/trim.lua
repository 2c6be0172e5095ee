-- Removes the oldest entries of a partition beyond its limit, some at a time; or, if there are none,
-- those past their retention. Keeps the id of the last one removed: a position before it is gone.
-- KEYS: prefix. ARGV: partition, limit of entries, oldest id to keep, limit of entries removed.
-- Returns whether there may be more to remove.

local stream, most = base .. ARGV[1], tonumber(ARGV[4])
local excess = math.min(redis.call('XLEN', stream) - ARGV[2], most)
local last
if excess > 0 then
  last = redis.call('XRANGE', stream, '-', '+', 'COUNT', excess)[excess][1]
else
  local before = '(' .. ARGV[3]
  -- If nothing is older, a backward search would scan the whole stream.
  if #redis.call('XRANGE', stream, '-', before, 'COUNT', 1) == 0 then return 0 end
  last = redis.call('XREVRANGE', stream, before, '-', 'COUNT', 1)[1][1]
end
redis.call('HSET', base .. 'floor', ARGV[1], last)
local ms, seq = string.match(last, '(%d+)-(%d+)')
-- MINID keeps the entry with its id: use the next id, as `last` is removed too. '%.0f': no exponent.
redis.call('XTRIM', stream, 'MINID', '=', ms .. '-' .. string.format('%.0f', seq + 1))
return excess > 0 and 1 or 0
