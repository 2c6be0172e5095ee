-- Removes a flow with its messages; results expire.
-- KEYS: prefix.

for _, set in ipairs({'queue', 'running'}) do
  for _, number in ipairs(redis.call('ZRANGE', base .. set, 0, -1)) do
    redis.call('DEL', base .. 'partition:' .. number, base .. 'lease:' .. number)
  end
end
for _, name in ipairs({
  'bound', 'level', 'arrived', 'sent', 'given', 'open', 'values', 'queue', 'running', 'lease:out', 'due',
  'attempts', 'held', 'waiting', 'dead', 'since', 'ended', 'digest', 'results', 'counts', 'report',
  'pauses', 'behind',
}) do redis.call('DEL', base .. name) end
-- A count is kept for two spans.
for at = span() - 2, span() do redis.call('DEL', base .. 'late:' .. at) end
