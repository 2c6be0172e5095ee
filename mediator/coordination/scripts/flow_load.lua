-- Returns the load of a flow for admission control.
-- KEYS: prefix.
-- Returns {messages that have not ended, without dead letters; how many ended beyond the latency bound in this
-- time span and the previous one; how many ever did; ms for which the flow is still paused}.

local late = 0
for at = span() - 1, span() do late = late + (redis.call('GET', base .. 'late:' .. at) or 0) end
local queued = redis.call('HLEN', base .. 'waiting') - redis.call('ZCARD', base .. 'dead')
local ever = tonumber(redis.call('HGET', base .. 'counts', 'late') or 0)
return {queued, late, ever, paused_ms(FLOW) or 0}
