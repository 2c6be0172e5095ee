-- What every script of the feed begins with. KEYS[1] is what the keys of the database begin with.

if redis.replicate_commands then redis.replicate_commands() end

local base = KEYS[1]

-- Names the feed's life, if it has just begun.
local function incarnate(proposal)
  redis.call('SET', base .. 'incarnation', proposal, 'NX')
end

-- Whether one place in a log is before another. Lua's own comparison goes by the server's locale.
local function below(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- Whether the feed lacks something of what a replica has brought.
local function lacks(who, count)
  return tonumber(redis.call('HGET', base .. 'brought', who) or 0) < tonumber(count)
end
