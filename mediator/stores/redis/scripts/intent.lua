-- Sets a write intent on records, present or absent, removes it, or only reads it.
-- KEYS: class prefix. ARGV: action ('lock', 'unlock', 'join' or 'look'), intent, TTL of a tombstone
-- (ms), number of versions, their names..., ids... 'join' removes it from records that its write,
-- which has happened, did not touch.
-- Returns for each record its intent, creation version and versions as they are then.

if redis.replicate_commands then redis.replicate_commands() end

local call = redis.call
local action, intent, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local last, tombstones = 4 + ARGV[4], prefix .. 'tombstones'

local function apply(id)
  local key = prefix .. 'r:' .. id
  local held = call('HMGET', key, '!m', '!b', unpack(ARGV, 5, last))
  if action == 'lock' and not held[1] then
    call('HSET', key, '!m', intent)
    held[1] = intent
    if not held[2] then
      -- An absent record is nothing but its intent: it must not expire before that is removed.
      local clock = call('TIME')
      call('PEXPIRE', key, ttl)
      call('ZADD', tombstones, clock[1] * 1000 + math.floor(clock[2] / 1000) + ttl, id)
    end
  elseif (action == 'unlock' or action == 'join') and held[1] == intent then
    call('HDEL', key, '!m')
    if action == 'join' and held[2] then call('HSET', key, '!j', intent) end
    held[1] = false
    if call('EXISTS', key) == 0 then call('ZREM', tombstones, id) end
  end
  return held
end

local results = {}
for i = last + 1, #ARGV do results[#results + 1] = apply(ARGV[i]) end
return results
