-- Removes the oldest entries of a partition that are too many, some at a time; or, if none are,
-- those that are too old. Keeps the id of the last one removed: a position before it is gone.
-- KEYS: prefix. ARGV: partition, entries kept, oldest id kept, entries removed at most.
-- Answers whether there may be more to remove.

local stream, most = base .. ARGV[1], tonumber(ARGV[4])
local excess = math.min(redis.call('XLEN', stream) - ARGV[2], most)
local last
if excess > 0 then
  last = redis.call('XRANGE', stream, '-', '+', 'COUNT', excess)[excess][1]
else
  local old = redis.call('XREVRANGE', stream, '(' .. ARGV[3], '-', 'COUNT', 1)[1]
  if not old then return 0 end
  last = old[1]
end
redis.call('HSET', base .. 'floor', ARGV[1], last)
local ms, seq = string.match(last, '(%d+)-(%d+)')
redis.call('XTRIM', stream, 'MINID', '=', ms .. '-' .. string.format('%.0f', seq + 1))
return excess > 0 and 1 or 0
