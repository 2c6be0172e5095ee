-- Queues messages, all or none.
-- KEYS: prefix. ARGV: bound, Idempotency-Key ('' for none), fingerprint; then rows of values (those of
-- each level), ticket, body. Returns 1; 0: queued before under this key; -1: full; -2: other messages under this
-- key; -3: no such flow.

if redis.call('EXISTS', base .. 'bound') == 0 then return -3 end
local key = base .. 'key:' .. ARGV[2]
if ARGV[2] ~= '' then
  local seen = redis.call('GET', key)
  if seen then return seen == ARGV[3] and 0 or -2 end
end
if redis.call('HLEN', base .. 'waiting') + (#ARGV - 3) / 3 > tonumber(ARGV[1]) then return -1 end
if ARGV[2] ~= '' then redis.call('SET', key, ARGV[3], 'PX', RESULT_MS) end
local ms, level = now_ms(), tonumber(redis.call('GET', base .. 'level') or 0)
for row = 4, #ARGV, 3 do
  append(level, ARGV[row], ARGV[row + 1], ARGV[row + 2], ms)
end
return 1
