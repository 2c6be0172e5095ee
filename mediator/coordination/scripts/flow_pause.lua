-- Pauses a flow, or changes for how long it is paused: messages are queued, and no batch is taken.
-- KEYS: prefix. ARGV: version of the rules, number of the rule, milliseconds.
-- Returns 1; 0: it was paused before; -1: no such flow.

if redis.call('EXISTS', base .. 'bound') == 0 then return -1 end
local before = redis.call('EXISTS', base .. 'paused')
redis.call('SET', base .. 'paused', table.concat(ARGV, ' '), 'PX', ARGV[3])
redis.call('SET', base .. 'behind', 1)
if before == 0 then count('pauses', 1) end
return 1 - before
