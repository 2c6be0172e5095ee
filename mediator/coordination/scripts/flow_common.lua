-- The beginning of every script of message flows, behind that of pauses: KEYS[1] is what the keys of the
-- flow begin with, and while there is a pause of FLOW, nothing is taken.
--
-- bound                  the latency bound (ms), as long as the flow exists
-- level                  number of the level that messages are queued by
-- arrived, sent          positions of the last message that arrived, and of the last one sent in order
-- given                  position of the last message that was given to a worker to be sent in order
-- open                   hash: by the value of a partition its number, while messages may join it
-- values                 hash: the value of each queued partition
-- queue, running         sorted sets of partitions by creation: waiting, and taken by a worker
-- partition:<n>          list: its messages, each as position, time (ms), ticket and body
-- lease:<n>, lease:out   who executes a batch, and who sends in order
-- due                    when the next partition is due (microseconds)
-- attempts               hash: how often each running partition was given out; `out`: the position that is sent next, and how often
-- held                   hash: by position what ended, and waits for its turn
-- waiting                hash: by ticket '' or a dead letter; all that counts for the bound
-- dead                   sorted set of tickets by position
-- since                  hash: by ticket when a message arrived (ms) that has become a dead letter, until it is done
-- result:<ticket>        result of a message, until it expires
-- ended                  how many messages have ended: the number of the last one in `results`
-- digest                 the position after it, see `digests.lua`
-- results                stream: the ticket, the outcome and the digest of what ended, as far as it is kept
-- key:<id>               fingerprint and first ticket of a request, by its Idempotency-Key or a random id
-- counts                 hash
-- late:<n>               how many ended beyond the bound in the n-th span of time, until it has passed
-- behind                 exists from a pause until the queue has caught up with it

local function now_us()
  local clock = redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

-- Messages are queued by one level at a time; the value begins with its number, as those of two
-- levels may be equal.
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
  -- If it is known, it is a dead letter no more.
  if redis.call('HSET', base .. 'waiting', ticket, '') == 0 then redis.call('ZREM', base .. 'dead', ticket) end
  local head = string.format('%.0f %.0f %s ', position, ms, ticket)
  local messages = redis.call('RPUSH', base .. 'partition:' .. number, head .. body)
  if messages >= MAX_BATCH_MESSAGES then redis.call('HDEL', base .. 'open', value) end
end

-- Sets what expires, if it is not there. If it is, and lasts longer than it could have been set to,
-- the server's clock was set back.
local function hold(name, value, ms)
  if redis.call('SET', name, value, 'NX', 'PX', ms) then return true end
  if redis.call('PTTL', name) > tonumber(ms) then redis.call('PEXPIRE', name, ms) end
  return false
end

local function count(name, by)
  redis.call('HINCRBY', base .. 'counts', name, by)
end

-- The number of the present span of time.
local function span()
  return math.floor(now_ms() / SPAN_MS)
end

-- Numbers what has ended.
local function publish(ticket, outcome)
  local last = redis.call('INCR', base .. 'ended')
  local digest = digest_in(redis.call('GET', base .. 'digest'))
  digest = digest_after(digest, ticket .. ' ' .. outcome)
  local number = string.format('%.0f', last)
  redis.call('SET', base .. 'digest', number .. '-' .. digest)
  redis.call('XADD', base .. 'results', 'MAXLEN', MAX_RESULTS, number .. '-0', 't', ticket, 'o', outcome, 'd', digest)
end

-- Ends a message: its result can be read for some time, a failed one becomes a dead letter.
-- Returns 1 if that was beyond the latency bound, else 0.
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
    -- Its first arrival, also when it was replayed: stores know its writes since then.
    redis.call('HSETNX', base .. 'since', ticket, string.format('%.0f', arrived_ms))
  else
    redis.call('HDEL', base .. 'waiting', ticket)
    redis.call('HDEL', base .. 'since', ticket)
    redis.call('SET', base .. 'result:' .. ticket, document, 'PX', RESULT_MS)
  end
  return late
end
