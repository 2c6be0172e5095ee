-- Gives a worker a batch: one whose lease has ended, or the oldest partition if one is due.
-- KEYS: prefix. ARGV: token, milliseconds of the lease, milliseconds until the next one is due.
-- Returns {number, attempt, partitions, arrived, level, 1 if the queue is behind after a pause and else 0,
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
-- As many as there are workers at most.
for _, number in ipairs(redis.call('ZRANGE', base .. 'running', 0, -1)) do
  if hold(base .. 'lease:' .. number, ARGV[1], ARGV[2]) then
    return give(number, partitions + 1)
  end
end
if partitions == 0 then
  redis.call('DEL', base .. 'behind')
  return {}
end
local wait_ms = tonumber(ARGV[3])
if wait_ms > 0 then
  -- Each partition has its turn once in so many waits. One whose turn is late does not wait: at the
  -- shortest valid wait batches keep up, but never catch up.
  local oldest = redis.call('ZRANGE', base .. 'queue', 0, 0)[1]
  local head = redis.call('LINDEX', base .. 'partition:' .. oldest, 0)
  local turn_ms = string.match(head, ' (%d+) ') + partitions * wait_ms - now_ms()
  if turn_ms > 0 then redis.call('DEL', base .. 'behind') end
  if turn_ms <= 0 then
    redis.call('SET', base .. 'timer', 1, 'PX', wait_ms)
  elseif not hold(base .. 'timer', 1, wait_ms) then
    return {math.max(1, math.min(turn_ms, redis.call('PTTL', base .. 'timer')))}
  end
end
local number = redis.call('ZPOPMIN', base .. 'queue')[1]
local value = redis.call('HGET', base .. 'values', number)
redis.call('HDEL', base .. 'values', number)
if redis.call('HGET', base .. 'open', value) == number then redis.call('HDEL', base .. 'open', value) end
redis.call('ZADD', base .. 'running', number, number)
redis.call('SET', base .. 'lease:' .. number, ARGV[1], 'PX', ARGV[2])
return give(number, partitions)
