-- What every script of the feed begins with. KEYS[1] is what the keys of the database begin with.

if redis.replicate_commands then redis.replicate_commands() end

local base = KEYS[1]

-- Names the generation of the feed, if it has just begun.
local function begin_generation(proposal)
  redis.call('SET', base .. 'generation', proposal, 'NX')
end

-- Whether one place in a log is before another. Lua's own comparison goes by the server's locale.
local function below(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- The number of the count at `key`, which only rises; `on`: counted on. Numbers tell what came first,
-- and nothing else: the clock only makes them unlike those of a count that was lost. Where another
-- server goes on, or the same one with an older state, numbers are skipped that may have been given
-- out since that state: nobody's number from before is above one that is given out, or read, here.
local function counted(key, on)
  local last, run = unpack(redis.call('HMGET', key, 'number', 'run'))
  local here = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local number = tonumber(last or 0)
  if run ~= here then
    number = number + SKIPPED
  elseif not on then
    return number
  end
  local clock = redis.call('TIME')
  number = math.max(number + 1, clock[1] * 1000000 + clock[2])
  redis.call('HSET', key, 'number', string.format('%.0f', number), 'run', here)
  return number
end

-- The counts of replicas that were retired some periods ago.
local function retired(ago)
  return base .. 'retired:' .. (math.floor(redis.call('TIME')[1] / RETIRED_KEPT_S) - ago)
end

-- Whether the feed lacks something of what a replica has brought. One that was retired, and lives,
-- comes back with its count: the feed has lost nothing by retiring it.
local function lacks(who, count)
  local had = redis.call('HGET', base .. 'brought', who)
  for ago = 0, 1 do
    if not had then
      had = redis.call('HGET', retired(ago), who)
      if had then redis.call('HSET', base .. 'brought', who, had) end
    end
  end
  return tonumber(had or 0) < tonumber(count)
end
