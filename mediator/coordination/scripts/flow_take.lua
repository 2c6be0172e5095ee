-- Gives a worker a batch: one whose lease has expired, or the oldest partition if one is due.
-- KEYS: prefix. ARGV: token, milliseconds of the lease, microseconds from one partition to the next.
-- Returns {number, attempt, partitions, arrived, level, 1 if the queue is behind after a pause, else 0,
-- message, ...}, or {ms until one is due}; {}: none.

local function give(number, partitions)
  local attempt = redis.call('HINCRBY', base .. 'attempts', number, 1)
  local arrived = tonumber(redis.call('GET', base .. 'arrived'))
  local level = tonumber(redis.call('GET', base .. 'level') or 0)
  local behind = redis.call('EXISTS', base .. 'behind')
  local given = {tonumber(number), attempt, partitions, arrived, level, behind}
  for _, message in ipairs(redis.call('LRANGE', base .. 'partition:' .. number, 0, -1)) do
    given[#given + 1] = message
  end
  return given
end

local paused = paused_ms(FLOW)
if paused then return {paused} end
local partitions = redis.call('ZCARD', base .. 'queue')
-- At most as many as there are workers.
for _, number in ipairs(redis.call('ZRANGE', base .. 'running', 0, -1)) do
  if hold(base .. 'lease:' .. number, ARGV[1], ARGV[2]) then
    return give(number, partitions + 1)
  end
end
if partitions == 0 then
  redis.call('DEL', base .. 'behind')
  return {}
end
local wait_us = tonumber(ARGV[3])
if wait_us > 0 then
  local now = now_us()
  local oldest = redis.call('ZRANGE', base .. 'queue', 0, 0)[1]
  local head = redis.call('LINDEX', base .. 'partition:' .. oldest, 0)
  local arrived = string.match(head, ' (%d+) ') * 1000
  -- A partition has its turn once in as many waits as there are partitions. If the turn is late it does not wait.
  local turn = arrived + partitions * wait_us
  if turn > now then redis.call('DEL', base .. 'behind') end
  local due = tonumber(redis.call('GET', base .. 'due') or now)
  if due > now + wait_us then
    -- The server's clock was set back, or the waiting time was shortened.
    due = now + wait_us
    redis.call('SET', base .. 'due', string.format('%.0f', due))
  end
  local left = math.min(turn, due) - now
  if left > 0 then return {math.ceil(left / 1000)} end
  -- One wait after this one was due, not after it was taken: at the shortest valid wait batches only just
  -- keep up, and would never make up for the time that a long batch or a late worker loses. No partition
  -- is due before it has arrived.
  local next_due = math.min(math.max(due, arrived), now) + wait_us
  redis.call('SET', base .. 'due', string.format('%.0f', next_due))
end
local number = redis.call('ZPOPMIN', base .. 'queue')[1]
local value = redis.call('HGET', base .. 'values', number)
redis.call('HDEL', base .. 'values', number)
if redis.call('HGET', base .. 'open', value) == number then redis.call('HDEL', base .. 'open', value) end
redis.call('ZADD', base .. 'running', number, number)
redis.call('SET', base .. 'lease:' .. number, ARGV[1], 'PX', ARGV[2])
return give(number, partitions)
