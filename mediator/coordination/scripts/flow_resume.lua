-- Ends the pause of a flow.
-- KEYS: prefix. ARGV: '', or the version of rules that its rule must be older than. Returns 1; 0: there was none.

local paused = redis.call('GET', base .. 'paused')
if not paused then return 0 end
if ARGV[1] ~= '' and tonumber(string.match(paused, '^%d+')) >= tonumber(ARGV[1]) then return 0 end
return redis.call('DEL', base .. 'paused')
