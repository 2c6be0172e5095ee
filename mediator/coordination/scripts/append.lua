-- Appends what a relay has read of a log, and moves the cursor.
-- KEYS: prefix, lease. ARGV: incarnation proposed, token, source, after, upto; then rows of
-- partition, place, class, document, with a blank between them. Answers how many were new; -1: no
-- lease; -2: went back.

local token, source, after, upto = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('GET', KEYS[2]) ~= token then return -1 end
local cursor = redis.call('HGET', base .. 'cursors', source) or ''
if below(cursor, after) then return -2 end
incarnate(ARGV[1])
local new, appended = false, 0
for at = 6, #ARGV do
  local partition, place, class, rest = string.match(ARGV[at], '^(%S+) (%S+) (%S+) ()')
  new = new or below(cursor, place)
  if new then
    redis.call('XADD', base .. partition, '*', 'k', class, 'c', string.sub(ARGV[at], rest))
    appended = appended + 1
  end
end
if below(cursor, upto) then redis.call('HSET', base .. 'cursors', source, upto) end
return appended
