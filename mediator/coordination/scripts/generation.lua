-- Returns the generation of the feed.
-- KEYS: prefix. ARGV: generation proposed, if it has none.

begin_generation(ARGV[1])
return redis.call('GET', base .. 'generation')
