-- Tuples after a number. Reads them in chunks, as a page of them may be large.
-- ARGV: name, the number ('' for that before the oldest), how many, bytes beyond which there are no more.
-- Returns {number of the oldest kept, of the last, tuple, ...}; {}: no such stream.

local last = tonumber(redis.call('HGET', state_key, 'last'))
if not last then return {} end
local oldest = record_at(0)
local found, bytes = {oldest and oldest.number or last + 1, last}, 0
local after, left = tonumber(ARGV[2]) or found[1] - 1, tonumber(ARGV[3])
if after + 1 < found[1] or after >= last then return found end
while left > 0 and bytes < tonumber(ARGV[4]) do
  local chunk = redis.call('XRANGE', base .. 'tuples:' .. name, whole(after + 1) .. '-0', '+',
    'COUNT', math.min(left, CHUNK))
  for _, entry in ipairs(chunk) do
    found[#found + 1] = entry[2][2]
    bytes = bytes + #entry[2][2]
  end
  if #chunk < CHUNK then break end
  after, left = after + #chunk, left - #chunk
end
return found
