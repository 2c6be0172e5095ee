-- Returns the entries with the tuples after a number; the first entry may begin before it. Reads them in
-- chunks, as a page may be large.
-- ARGV: name, the number ('' for that before the oldest), limit of tuples, bytes beyond which there are no
-- further entries. Returns {number of the oldest tuple kept, of the last one; then for each entry the number
-- of its last tuple, its text, ...}; {}: no such stream.

local last = tonumber(redis.call('HGET', state_key, 'last'))
if not last then return {} end
local oldest = record_at(0)
local found, bytes = {oldest and oldest.number or last + 1, last}, 0
local after = tonumber(ARGV[2]) or found[1] - 1
local most, most_bytes = math.min(last, after + tonumber(ARGV[3])), tonumber(ARGV[4])
if after + 1 < found[1] then return found end
while after < most and bytes < most_bytes do
  local entries = redis.call('XRANGE', base .. 'tuples:' .. name, whole(after + 1) .. '-0', '+',
    'COUNT', math.min(most - after, ENTRIES))
  if #entries == 0 then break end
  for _, entry in ipairs(entries) do
    if after >= most or bytes >= most_bytes then break end
    after = tonumber(string.match(entry[1], '^%d+'))
    found[#found + 1] = after
    found[#found + 1] = entry[2][2]
    bytes = bytes + #entry[2][2]
  end
end
return found
