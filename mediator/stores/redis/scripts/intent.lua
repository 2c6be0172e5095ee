-- Sets a write intent on records, present or absent, removes it, or only reads it.
-- KEYS: class prefix, claims of the class. ARGV: action ('lock', 'unlock', 'join' or 'look'), intent,
-- TTL of a tombstone (ms), number of versions, their names..., number of unique constraints, their
-- names..., ids... 'join' removes it from records that its write, which has happened, did not touch.
-- What was reserved under it goes with it. A record that is fenced against the intent does not take it.
-- Returns for each record its intent, last joint write, creation version and versions as they are
-- then.

if redis.replicate_commands then redis.replicate_commands() end

local call = redis.call
local action, intent, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local last, tombstones = 4 + ARGV[4], prefix .. 'tombstones'
local first_id = last + 2 + ARGV[last + 1]
local constraints = { unpack(ARGV, last + 2, first_id - 1) }
local fences = action == 'lock' and call('EXISTS', prefix .. 'fences') == 1 and prefix .. 'fences'

local function apply(id)
  local key = prefix .. 'r:' .. id
  local held = call('HMGET', key, '!m', '!j', '!b', unpack(ARGV, 5, last))
  if action == 'lock' and not held[1] then
    if fences and call('ZSCORE', fences, #id .. ':' .. id .. intent) then return held end
    call('HSET', key, '!m', intent)
    held[1] = intent
    if not held[3] then
      -- An absent record is nothing but its intent: it must not expire before that is removed.
      local clock = call('TIME')
      call('PEXPIRE', key, ttl)
      call('ZADD', tombstones, clock[1] * 1000 + math.floor(clock[2] / 1000) + ttl, id)
    end
  elseif (action == 'unlock' or action == 'join') and held[1] == intent then
    call('HDEL', key, '!m')
    if constraints[1] then claims().cancel(constraints, key) end
    if action == 'join' and held[3] then
      call('HSET', key, '!j', intent)
      held[2] = intent
    end
    held[1] = false
    if call('EXISTS', key) == 0 then call('ZREM', tombstones, id) end
  end
  return held
end

local results = {}
for i = first_id, #ARGV do results[#results + 1] = apply(ARGV[i]) end
return results
