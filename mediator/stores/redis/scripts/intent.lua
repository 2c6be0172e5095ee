-- Sets a write intent on records, there or not, takes it away, or only looks. KEYS: class prefix.
-- ARGV: what ('lock', 'unlock', 'join' or 'look'), intent, life of a tombstone (ms), number of
-- versions, their names..., ids... 'join' takes it away from what its write, which has happened, did
-- not touch. Answers for each record its intent, creation version and versions as they are then.

if redis.replicate_commands then redis.replicate_commands() end

local call = redis.call
local what, intent, life = ARGV[1], ARGV[2], tonumber(ARGV[3])
local last, graves = 4 + ARGV[4], prefix .. 'graves'

local function marked(id)
  local key = prefix .. 'r:' .. id
  local held = call('HMGET', key, '!m', '!b', unpack(ARGV, 5, last))
  if what == 'lock' and not held[1] then
    call('HSET', key, '!m', intent)
    held[1] = intent
    if not held[2] then
      -- What marks an absent record must not end before the intent is taken away.
      local clock = call('TIME')
      call('PEXPIRE', key, life)
      call('ZADD', graves, clock[1] * 1000 + math.floor(clock[2] / 1000) + life, id)
    end
  elseif (what == 'unlock' or what == 'join') and held[1] == intent then
    call('HDEL', key, '!m')
    if what == 'join' and held[2] then call('HSET', key, '!j', intent) end
    held[1] = false
    if call('EXISTS', key) == 0 then call('ZREM', graves, id) end
  end
  return held
end

local answers = {}
for i = last + 1, #ARGV do answers[#answers + 1] = marked(ARGV[i]) end
return answers
