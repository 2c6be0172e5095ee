-- Tells up to when all that a system acknowledged is in the feed.
-- KEYS: prefix, lease (none for a replica). ARGV: incarnation proposed, token, field, until, how
-- often a replica has brought something ('' for a relay); then pairs of source, cursor.
-- Answers 1; -1: no lease; -2: went back.

if KEYS[2] and redis.call('GET', KEYS[2]) ~= ARGV[2] then return -1 end
if ARGV[5] ~= '' and lacks(ARGV[3], ARGV[5]) then return -2 end
for at = 6, #ARGV, 2 do
  local cursor = redis.call('HGET', base .. 'cursors', ARGV[at]) or ''
  if below(cursor, ARGV[at + 1]) then return -2 end
end
incarnate(ARGV[1])
redis.call('HSET', base .. 'until', ARGV[3], ARGV[4])
return 1
