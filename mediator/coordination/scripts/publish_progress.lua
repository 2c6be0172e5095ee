-- Publishes up to when all changes that a replica made itself are in the feed.
-- KEYS: prefix. ARGV: generation proposed, writer, until, how often the writer has appended.
-- Returns 1; -2: went back.

if lacks(ARGV[2], ARGV[4]) then return -2 end
begin_generation(ARGV[1])
redis.call('HSET', base .. 'until', ARGV[2], ARGV[3])
return 1
