-- Tells up to when all that a replica wrote itself is in the feed.
-- KEYS: prefix. ARGV: generation proposed, who, until, how often that one has brought something.
-- Answers 1; -2: went back.

if lacks(ARGV[2], ARGV[4]) then return -2 end
begin_generation(ARGV[1])
redis.call('HSET', base .. 'until', ARGV[2], ARGV[3])
return 1
