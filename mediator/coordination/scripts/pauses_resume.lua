-- Ends a pause. ARGV: id. Returns 1; 0: there was none.

local before = paused_ms(ARGV[1])
redis.call('HDEL', base .. 'pauses', ARGV[1])
return before and 1 or 0
