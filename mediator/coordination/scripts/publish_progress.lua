-- Publishes up to when the feed has all changes that a replica made itself.
-- KEYS: prefix. ARGV: proposed generation, writer, until, how often the writer has appended.
-- Returns 1; -2: the feed rolled back.

if lacks(ARGV[2], ARGV[4]) then return -2 end
begin_generation(ARGV[1])
redis.call('HSET', base .. 'until', ARGV[2], ARGV[3])
return 1
