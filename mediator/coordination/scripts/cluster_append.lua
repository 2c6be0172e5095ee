-- Appends to the log of a relation, all or nothing, and once for each id of an append.
-- KEYS: prefix. ARGV: id of the cluster, relation, id of the append, for how long to remember it (ms), then the
-- time and the values ('' for a heartbeat) of each tuple.
-- Returns the number of the last tuple; -1: the log is full; -2: the cluster is gone.

local base, relation = KEYS[1], ARGV[2]
if redis.call('GET', base .. 'id') ~= ARGV[1] then return -2 end
local append = base .. 'append:' .. relation .. ':' .. ARGV[3]
local _, appended = known_append(append)
if appended then return tonumber(appended) end
local log = base .. 'log:' .. relation
if redis.call('XLEN', log) + (#ARGV - 4) / 2 > MAX_LOG_ENTRIES then return -1 end
local number = tonumber(redis.call('HGET', base .. 'logs', relation .. '/number') or 0)
-- Kept as text: a number that Lua converts may lose digits.
local latest = redis.call('HGET', base .. 'logs', relation .. '/latest')
for i = 5, #ARGV, 2 do
  number = number + 1
  if not latest or tonumber(ARGV[i]) > tonumber(latest) then latest = ARGV[i] end
  redis.call('XADD', log, string.format('%.0f-1', number), 't', ARGV[i], 'v', ARGV[i + 1], 'l', latest)
end
redis.call('HSET', base .. 'logs', relation .. '/number', string.format('%.0f', number))
if latest then redis.call('HSET', base .. 'logs', relation .. '/latest', latest) end
remember_append(append, '', string.format('%.0f', number), ARGV[4])
return number
