-- Results in the order in which messages ended, from a position on.
-- KEYS: prefix. ARGV: position behind which they are ('' for all), how many, bytes beyond which there are
-- no more. Returns {position, ticket, outcome, document, ...}; {}: not all of them are kept.

local after = tonumber(ARGV[1])
local last = tonumber(redis.call('GET', base .. 'ended') or 0)
local oldest = redis.call('XRANGE', base .. 'results', '-', '+', 'COUNT', 1)[1]
local first = oldest and tonumber(string.match(oldest[1], '%d+')) or last + 1
if not after then after = first - 1 end
if after < first - 1 or after > last then return {} end
local found, bytes = {after}, 0
local from = string.format('%.0f', after + 1)
for _, entry in ipairs(redis.call('XRANGE', base .. 'results', from, '+', 'COUNT', ARGV[2])) do
  local ticket, outcome = entry[2][2], entry[2][4]
  local document
  if outcome == 'done' then
    document = redis.call('GET', base .. 'result:' .. ticket)
  else
    document = redis.call('HGET', base .. 'waiting', ticket)
  end
  found[1] = tonumber(string.match(entry[1], '%d+'))
  -- Else it is kept no longer, or is replayed and will end again.
  if document and document ~= '' then
    for _, text in ipairs({found[1], ticket, outcome, document}) do found[#found + 1] = text end
    bytes = bytes + #document
    if bytes >= tonumber(ARGV[3]) then break end
  end
end
return found
