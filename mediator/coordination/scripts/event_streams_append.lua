-- Appends tuples, all or none, and removes some tuples past their retention.
-- ARGV: name, id of the batch, its fingerprint, for how long to remember both (ms), limit of bytes, id of the
-- stream ('' for any), an upper bound of the times of the tuples (whole seconds); then entries: the number of
-- tuples in each, and their text.
-- Returns {last number, 1}; {last number, 0}: appended before; {-1, reason, ms until there is room}: full;
-- {-2, tuples behind, consumer}: the consumer is too far behind; {-3}: no such stream; {-4, its fingerprint}:
-- another batch has this id.

local records, tuples = base .. 'records:' .. name, base .. 'tuples:' .. name
local batch, count, size = base .. 'append:' .. name .. ':' .. ARGV[2], 0, 0
for i = 8, #ARGV, 2 do
  local lines = tonumber(ARGV[i])
  count, size = count + lines, size + #ARGV[i + 1] - (lines - 1)
end
local declared = redis.call('HMGET', state_key, 'retention', 'begin', 'id')
if not declared[1] or (ARGV[6] ~= '' and ARGV[6] ~= declared[3]) then return {-3} end
local retention = tonumber(declared[1])
local fingerprint, appended = known_append(batch)
-- Otherwise it went to an earlier stream of this name.
if appended and tonumber(appended) > tonumber(declared[2]) then
  return fingerprint == ARGV[3] and {tonumber(appended), 0} or {-4, fingerprint}
end

local elapsed = elapse()
local state = redis.call('HMGET', state_key, 'most', 'last', 'bytes', 'rate', 'rated')
local most, last, bytes = tonumber(state[1]), tonumber(state[2]), tonumber(state[3])

-- Removes in proportion to the append, so that no batch pays for a long pause.
local oldest, removed, room = record_at(0), 0, 2 * count + TUPLES_A_RECORD
while oldest and removed < room and oldest.last + retention <= elapsed do
  redis.call('LPOP', records)
  local following = record_at(0)
  removed = removed + (following and following.number or last + 1) - oldest.number
  oldest = following
end
local first = oldest and oldest.number or last + 1
if removed > 0 then redis.call('XTRIM', tuples, 'MINID', whole(first) .. '-0') end

local kept = oldest and bytes - oldest.bytes or 0
local full = last - first + 1 + count > most and 'tuples' or kept + size > tonumber(ARGV[5]) and 'bytes'
if full then return {-1, full, oldest and oldest.last + retention - elapsed or 0} end

-- Consumers that are gone are forgotten here, as they are the furthest behind.
while true do
  local slowest = redis.call('ZRANGE', base .. 'consumed:' .. name, 0, 0, 'WITHSCORES')
  local behind = slowest[1] and last + count - tonumber(slowest[2]) or 0
  if behind <= MAX_BEHIND then break end
  local seen = redis.call('ZSCORE', base .. 'seen:' .. name, slowest[1])
  if seen and elapsed - tonumber(seen) < LIVE_MS then return {-2, behind, slowest[1]} end
  forget(slowest[1])
end

local newest, latest = record_at(-1), tonumber(ARGV[7])
local spacing = math.floor(retention / RECORDS)
if newest and elapsed - newest.first < spacing and last - newest.number < TUPLES_A_RECORD then
  newest.last, newest.latest = elapsed, newest.latest and math.max(newest.latest, latest)
  redis.call('LSET', records, -1, text_of(newest))
else
  redis.call('RPUSH', records, text_of({number = last + 1, bytes = bytes, first = elapsed, last = elapsed,
    latest = latest}))
end
local number = last
for i = 8, #ARGV, 2 do
  number = number + tonumber(ARGV[i])
  redis.call('XADD', tuples, whole(number) .. '-0', 't', ARGV[i + 1], 'n', ARGV[i])
end
-- Without further tuples, all of them are past their retention by then.
redis.call('PEXPIRE', tuples, retention)
redis.call('PEXPIRE', records, retention)
local rate = tonumber(state[4]) * math.exp((tonumber(state[5]) - elapsed) / RATE_MS)
redis.call('HSET', state_key, 'last', whole(last + count), 'bytes', whole(bytes + size),
  'rate', rate + count * 1000 / RATE_MS, 'rated', whole(elapsed))
remember_append(batch, ARGV[3], whole(last + count), ARGV[4])
return {last + count, 1}
