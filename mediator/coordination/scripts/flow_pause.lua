-- Pauses a flow, or changes the duration of its pause: messages are queued, but no batch is taken.
-- KEYS: prefix. ARGV: FLOW, version of the rules, number of the rule, milliseconds.
-- Returns 1; 0: it was paused before; -1: no such flow.

if redis.call('EXISTS', base .. 'bound') == 0 then return -1 end
redis.call('SET', base .. 'behind', 1)
local began = pause(unpack(ARGV))
count('pauses', began)
return began
