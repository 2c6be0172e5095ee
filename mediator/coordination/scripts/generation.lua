-- Returns the generation of the feed.
-- KEYS: prefix. ARGV: proposed generation, if the feed has none.

begin_generation(ARGV[1])
return redis.call('GET', base .. 'generation')
