-- Publishes a batch of a database's standing queries.
-- KEYS: prefix, lease. ARGV: token, number of batches before, progress, first batch to keep, limit of
-- results of a query, number of new entries of the log, and of entries to forget; then id and tuples
-- of each new entry; ids of the entries to forget; and for each query: id, state ('' if unchanged),
-- number of results, and these.
-- Returns 1; -1: no lease, or another number of batches. A repeated call has no further effect.

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
local entries = 8 + 2 * tonumber(ARGV[6])
for entry = 8, entries - 1, 2 do
  redis.call('XADD', base .. 'batches', ARGV[entry], 'tuples', ARGV[entry + 1])
end
redis.call('XTRIM', base .. 'batches', 'MINID', ARGV[4] .. '-0')
local at = entries + tonumber(ARGV[7])
for forgotten = entries, at - 1 do
  redis.call('XDEL', base .. 'batches', ARGV[forgotten])
end
while at <= #ARGV do
  local query, state, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  if redis.call('HEXISTS', base .. 'queries', query) == 1 then
    if state ~= '' then redis.call('HSET', base .. 'states', query, state) end
    local number = tonumber(redis.call('HGET', base .. 'counts', query) or 0)
    local digest = digest_in(redis.call('HGET', base .. 'digests', query))
    for result = at, at + count - 1 do
      number = number + 1
      digest = digest_after(digest, ARGV[result])
      redis.call('XADD', base .. 'results:' .. query, 'MAXLEN', ARGV[5], id_of(number), 'r', ARGV[result], 'd', digest)
    end
    if count > 0 then
      local text = string.format('%.0f', number)
      redis.call('HSET', base .. 'counts', query, text)
      redis.call('HSET', base .. 'digests', query, text .. '-' .. digest)
    end
  end
  at = at + count
end
return 1
