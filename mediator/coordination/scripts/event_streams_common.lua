-- The beginning of every script of event streams. KEYS[1] is what the keys of the database begin with,
-- ARGV[1] the name of the stream.
--
-- streams            hash: the document of each stream
-- dropped            hash: number of the last tuple of streams that were dropped lately
-- highest            the highest one of all that were dropped before
-- state:<name>       hash: retention (ms) and most (tuples), as declared; id, which no other stream has;
--                    begin, the number before its first tuple; last, that of its last one; bytes of all
--                    tuples there ever were; clock, the server's time when it was read last, and elapsed,
--                    by how much it has gone on (ms); rate (tuples in a second, lately), and rated, the
--                    time elapsed that it is of
-- tuples:<name>      stream: tuples, by their number
-- records:<name>     list: of some tuples, oldest first, their number, the bytes before them, and the
--                    time elapsed when they arrived, and when the last one before the next of the list did;
--                    then a time that no tuple from here to the next of the list is later than, in whole
--                    seconds: older records have none
-- consumed:<name>    sorted set: the number up to which each consumer has got
-- seen:<name>        sorted set: the time elapsed when each of them last said so
-- append:<name>:<id> the fingerprint and the last number of a batch, until it expires

if redis.replicate_commands then redis.replicate_commands() end

local base, name = KEYS[1], ARGV[1]
local state_key = base .. 'state:' .. name

local function whole(number)
  return string.format('%.0f', number)
end

-- Returns the time that has elapsed for a stream, to which a clock that is set back adds nothing.
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
