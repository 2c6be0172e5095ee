-- Pauses a standing query, or changes the duration of its pause.
-- KEYS: prefix. ARGV: id of the query, version of the rules, number of the rule, milliseconds.
-- Returns 1; 0: it was paused before; -1: no such query.

if redis.call('HEXISTS', base .. 'queries', ARGV[1]) == 0 then return -1 end
return pause(unpack(ARGV))
