-- The beginning of every script of message flows, after that of pauses: KEYS[1] is the prefix of the flow's
-- keys, and during a pause of FLOW no batch is taken.
--
-- bound                  the latency bound (ms), as long as the flow exists
-- level                  number of the level by which messages are queued
-- arrived, sent          positions of the last message that arrived, and of the last one sent in order
-- given                  position of the last message that was given to a worker to be sent in order
-- open                   hash: the number of a partition by its value, while messages can join it
-- values                 hash: the value of each queued partition
-- queue, running         sorted sets of partitions by creation: waiting, and taken by a worker
-- partition:<n>          list: its messages, each as position, time (ms), ticket and body
-- lease:<n>, lease:out   the worker that executes a batch, and the one that sends in order
-- due                    when the next partition is due (microseconds)
-- attempts               hash: how often each running partition was given out; `out`: the position to send next, and how often
-- held                   hash: ended messages that wait for their turn, by position
-- waiting                hash: '' or a dead letter by ticket; all messages that count against the limit
-- dead                   sorted set of tickets by position
-- since                  hash: the arrival (ms) of a message that has become a dead letter, by ticket, until it is done
-- result:<ticket>        result of a message, until it expires
-- ended                  how many messages have ended: the number of the last one in `results`
-- digest                 the position after it, see `digests.lua`
-- results                stream: the ticket, the outcome and the digest of ended messages, as far as they are kept
-- key:<id>               fingerprint and first ticket of a request, by its Idempotency-Key or a random id
-- counts                 hash: counts, by the names in the flow's report
-- late:<n>               how many messages ended beyond the latency bound in the n-th time span, until it expires
-- behind                 exists from a pause until the queue has caught up

local function now_us()
  local clock = redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

-- Messages are queued by one level at a time; the value begins with the level's number, as values of two
-- levels can be equal.
local function append(level, values, ticket, body, ms)
  local value = level .. ':' .. string.sub(values, level * LEVEL_DIGITS + 1, (level + 1) * LEVEL_DIGITS)
  local position = redis.call('INCR', base .. 'arrived')
  local number = redis.call('HGET', base .. 'open', value)
  if not number then
    number = string.format('%.0f', position)
    redis.call('HSET', base .. 'open', value, number)
    redis.call('HSET', base .. 'values', number, value)
    redis.call('ZADD', base .. 'queue', number, number)
  end
  -- A ticket that exists is no longer that of a dead letter.
  if redis.call('HSET', base .. 'waiting', ticket, '') == 0 then redis.call('ZREM', base .. 'dead', ticket) end
  local head = string.format('%.0f %.0f %s ', position, ms, ticket)
  local messages = redis.call('RPUSH', base .. 'partition:' .. number, head .. body)
  if messages >= MAX_BATCH_MESSAGES then redis.call('HDEL', base .. 'open', value) end
end

-- Sets an expiring key unless it exists. If it exists, and lasts for longer than it can have been set to,
-- the server's clock was set back.
local function hold(name, value, ms)
  if redis.call('SET', name, value, 'NX', 'PX', ms) then return true end
  if redis.call('PTTL', name) > tonumber(ms) then redis.call('PEXPIRE', name, ms) end
  return false
end

local function count(name, by)
  redis.call('HINCRBY', base .. 'counts', name, by)
end

-- The number of the present time span.
local function span()
  return math.floor(now_ms() / SPAN_MS)
end

-- Numbers an ended message, and adds it to the results.
local function publish(ticket, outcome)
  local last = redis.call('INCR', base .. 'ended')
  local digest = digest_in(redis.call('GET', base .. 'digest'))
  digest = digest_after(digest, ticket .. ' ' .. outcome)
  local number = string.format('%.0f', last)
  redis.call('SET', base .. 'digest', number .. '-' .. digest)
  redis.call('XADD', base .. 'results', 'MAXLEN', MAX_RESULTS, number .. '-0', 't', ticket, 'o', outcome, 'd', digest)
end

-- Ends a message: its result can be read for some time, or it becomes a dead letter if it failed.
-- Returns 1 if it ended beyond the latency bound, else 0.
local function complete(position, arrived_ms, ticket, outcome, document)
  local bound_ms = tonumber(redis.call('GET', base .. 'bound') or 0)
  local late = now_ms() - arrived_ms > bound_ms and 1 or 0
  if late == 1 then
    count('late', 1)
    local lately = base .. 'late:' .. span()
    redis.call('INCR', lately)
    redis.call('PEXPIRE', lately, 2 * SPAN_MS)
  end
  count(outcome, 1)
  publish(ticket, outcome)
  if outcome == 'failed' then
    redis.call('HSET', base .. 'waiting', ticket, document)
    redis.call('ZADD', base .. 'dead', position, ticket)
    -- Its first arrival, even if it was replayed: stores remember its writes since then.
    redis.call('HSETNX', base .. 'since', ticket, string.format('%.0f', arrived_ms))
  else
    redis.call('HDEL', base .. 'waiting', ticket)
    redis.call('HDEL', base .. 'since', ticket)
    redis.call('SET', base .. 'result:' .. ticket, document, 'PX', RESULT_MS)
  end
  return late
end
