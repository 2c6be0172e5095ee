-- Returns results in the order in which messages ended.
-- KEYS: prefix. ARGV: id of the first result, limit of results, bytes beyond which there are no more.
-- Returns {the position after the last ended message; then for each result: number, digest, ticket, outcome,
-- document}; {}: no such flow. The document is '' if it is no longer kept, or if its message is being replayed and
-- will end again.

if redis.call('EXISTS', base .. 'bound') == 0 then return {} end
local found = {redis.call('GET', base .. 'digest') or ''}
local bytes = 0
for _, entry in ipairs(redis.call('XRANGE', base .. 'results', ARGV[1], '+', 'COUNT', ARGV[2])) do
  local _, ticket, _, outcome, _, digest = unpack(entry[2])
  local document
  if outcome == 'done' then
    document = redis.call('GET', base .. 'result:' .. ticket)
  else
    document = redis.call('HGET', base .. 'waiting', ticket)
  end
  document = document or ''
  for _, text in ipairs({string.match(entry[1], '%d+'), digest, ticket, outcome, document}) do
    found[#found + 1] = text
  end
  bytes = bytes + #document
  if bytes >= tonumber(ARGV[3]) then break end
end
return found
