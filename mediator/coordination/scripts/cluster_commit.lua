-- Commits a step of a participant, once.
-- KEYS: prefix. ARGV: id of the cluster, address, step, then counted lists: sender, position; receiver,
-- body; field, value; field to remove; result bodies.
-- Returns 1; 0: another process may have committed the step; -1: the cluster is gone.

local base, address, step = KEYS[1], ARGV[2], tonumber(ARGV[3])
if redis.call('GET', base .. 'id') ~= ARGV[1] then return -1 end
local record = base .. 'record:' .. address
if tonumber(redis.call('HGET', record, 'steps') or 0) ~= step - 1 then return 0 end
redis.call('HSET', record, 'steps', ARGV[3])

local at = 4
local function each(width, call)
  local count = tonumber(ARGV[at])
  at = at + 1
  for _ = 1, count do
    call(ARGV[at], ARGV[at + 1])
    at = at + width
  end
end

each(2, function(sender, position)
  local queue = base .. 'queue:' .. sender .. '>' .. address
  -- The taken frames are the head of the queue.
  redis.call('XTRIM', queue, 'MINID', position)
  redis.call('XDEL', queue, position)
end)
each(2, function(receiver, body)
  redis.call('XADD', base .. 'queue:' .. address .. '>' .. receiver, '*', 'm', body)
end)
each(2, function(field, value) redis.call('HSET', record, field, value) end)
each(1, function(field) redis.call('HDEL', record, field) end)
each(1, function(body) redis.call('XADD', base .. 'results', 'MAXLEN', '~', MAX_RESULTS, '*', 'r', body) end)
return 1
