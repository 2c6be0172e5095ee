-- Queues messages, all or none.
-- KEYS: prefix. ARGV: limit of messages, Idempotency-Key or a random id, fingerprint, for how long to remember both (ms);
-- then rows of values (of all levels), ticket, body. Returns 1; the first ticket, if they were queued before under this
-- key; -1: full; -2: the key has other messages; -3: no such flow.

if redis.call('EXISTS', base .. 'bound') == 0 then return -3 end
local key = base .. 'key:' .. ARGV[2]
local fingerprint, first = known_append(key)
if first then return fingerprint == ARGV[3] and first or -2 end
if redis.call('HLEN', base .. 'waiting') + (#ARGV - 4) / 3 > tonumber(ARGV[1]) then return -1 end
remember_append(key, ARGV[3], ARGV[6], ARGV[4])
local ms, level = now_ms(), tonumber(redis.call('GET', base .. 'level') or 0)
for row = 5, #ARGV, 3 do
  append(level, ARGV[row], ARGV[row + 1], ARGV[row + 2], ms)
end
return 1
