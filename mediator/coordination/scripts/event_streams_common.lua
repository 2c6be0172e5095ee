-- The beginning of every script of event streams. KEYS[1] is the prefix of the database's keys, ARGV[1]
-- the name of the stream.
--
-- streams            hash: the document of each stream
-- dropped            hash: the number of the last tuple of each recently dropped stream
-- highest            the highest such number of the streams dropped before these
-- state:<name>       hash: retention (ms) and most (tuples), as declared; id, unlike that of any other
--                    stream; begin, the number before its first tuple; last, that of its last one; bytes
--                    of all tuples ever appended; clock, the server's time (ms) at the last reading, and
--                    elapsed, the time that has passed by it; rate, recent tuples per second, and rated,
--                    the elapsed time at its computation
-- tuples:<name>      stream: tuples, by their number
-- records:<name>     list, oldest first: of some tuples the number, the bytes before it, the elapsed time
--                    of its arrival, and that of the last tuple before the next record; then an upper
--                    bound of the times of all tuples before the next record, in whole seconds, which
--                    older records lack
-- consumed:<name>    sorted set: the number up to which each consumer has read
-- seen:<name>        sorted set: the elapsed time at which each consumer last reported that
-- append:<name>:<id> the fingerprint and the last number of a batch, until it expires

if redis.replicate_commands then redis.replicate_commands() end

local base, name = KEYS[1], ARGV[1]
local state_key = base .. 'state:' .. name

local function whole(number)
  return string.format('%.0f', number)
end

-- Returns the elapsed time of a stream, to which a clock that is set back adds nothing.
local function elapse()
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local before = redis.call('HMGET', state_key, 'clock', 'elapsed')
  local elapsed = (tonumber(before[2]) or 0) + math.max(0, now - (tonumber(before[1]) or now))
  redis.call('HSET', state_key, 'clock', whole(now), 'elapsed', whole(elapsed))
  return elapsed
end

local function record_at(index)
  local text = redis.call('LINDEX', base .. 'records:' .. name, index)
  if not text then return nil end
  local number, bytes, first, last, latest = string.match(text, '(%d+) (%d+) (%d+) (%d+) ?(-?%d*)')
  return {number = tonumber(number), bytes = tonumber(bytes), first = tonumber(first), last = tonumber(last),
    latest = tonumber(latest)}
end

local function text_of(record)
  local text = string.format('%.0f %.0f %.0f %.0f', record.number, record.bytes, record.first, record.last)
  return record.latest and text .. ' ' .. whole(record.latest) or text
end

-- Removes a consumer.
local function forget(consumer)
  redis.call('ZREM', base .. 'consumed:' .. name, consumer)
  redis.call('ZREM', base .. 'seen:' .. name, consumer)
end
