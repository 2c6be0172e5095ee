-- Sets a write intent on a record, there or not, takes it away, or only looks. KEYS: class prefix.
-- ARGV: id, what ('lock', 'unlock', 'join' or 'look'), intent, life of a tombstone (ms), names of
-- the versions... 'join' takes it away from what its write, which has happened, did not touch.
-- Answers intent, birth and versions as they are then.

if redis.replicate_commands then redis.replicate_commands() end

local call = redis.call
local id, what, mark, life = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local key, graves = prefix .. 'r:' .. id, prefix .. 'graves'
local held = call('HMGET', key, '!m', '!b', unpack(ARGV, 5))

if what == 'lock' and not held[1] then
  call('HSET', key, '!m', mark)
  held[1] = mark
  if not held[2] then
    -- What marks an absent record must not end before the mark is taken away.
    local clock = call('TIME')
    call('PEXPIRE', key, life)
    call('ZADD', graves, clock[1] * 1000 + math.floor(clock[2] / 1000) + life, id)
  end
elseif (what == 'unlock' or what == 'join') and held[1] == mark then
  call('HDEL', key, '!m')
  if what == 'join' and held[2] then call('HSET', key, '!j', mark) end
  held[1] = false
  if call('EXISTS', key) == 0 then call('ZREM', graves, id) end
end
return held
