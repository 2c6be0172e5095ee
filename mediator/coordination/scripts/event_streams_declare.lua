-- Declares a stream, whose tuples get higher numbers than those of an earlier one of its name.
-- ARGV: name, document, limit of streams of the database, retention (ms), limit of tuples, id.
-- Returns 1; 0: the name is taken; -1: there are too many streams.

if redis.call('HEXISTS', base .. 'streams', name) == 1 then return 0 end
if redis.call('HLEN', base .. 'streams') >= tonumber(ARGV[3]) then return -1 end
redis.call('HSET', base .. 'streams', name, ARGV[2])
local begin = redis.call('HGET', base .. 'dropped', name) or redis.call('GET', base .. 'highest') or 0
redis.call('HSET', state_key, 'retention', ARGV[4], 'most', ARGV[5], 'id', ARGV[6], 'begin', begin, 'last', begin,
  'bytes', 0, 'rate', 0, 'rated', 0)
return 1
