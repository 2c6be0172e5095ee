-- Publishes a batch of a database's standing queries.
-- KEYS: prefix, lease. ARGV: token, batches before, progress, tuples ('' if there are none), first batch
-- that is kept, results of a query that are kept; then for each query: id, state ('' if it stays), how
-- many results follow, and these.
-- Returns 1; -1: no lease, or another number of batches. What the same call published before stays.

if redis.replicate_commands then redis.replicate_commands() end

local base, sequence = KEYS[1], tonumber(ARGV[2])
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
local present = tonumber(redis.call('HGET', base .. 'published', 'sequence') or 0)
if present == sequence + 1 then return 1 end
if present ~= sequence then return -1 end

local function id_of(number)
  return string.format('%.0f-0', number)
end

redis.call('HSET', base .. 'published', 'sequence', string.format('%.0f', sequence + 1), 'progress', ARGV[3])
if ARGV[4] ~= '' then
  redis.call('XADD', base .. 'batches', id_of(sequence + 1), 'tuples', ARGV[4])
end
redis.call('XTRIM', base .. 'batches', 'MINID', ARGV[5] .. '-0')
local at = 7
while at <= #ARGV do
  local query, state, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  if redis.call('HEXISTS', base .. 'queries', query) == 1 then
    if state ~= '' then redis.call('HSET', base .. 'states', query, state) end
    local number = tonumber(redis.call('HGET', base .. 'counts', query) or 0)
    for result = at, at + count - 1 do
      number = number + 1
      redis.call('XADD', base .. 'results:' .. query, 'MAXLEN', ARGV[6], id_of(number), 'r', ARGV[result])
    end
    if count > 0 then redis.call('HSET', base .. 'counts', query, string.format('%.0f', number)) end
  end
  at = at + count
end
return 1
