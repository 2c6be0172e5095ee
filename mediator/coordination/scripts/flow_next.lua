-- Returns the held messages that are next in order, for the one worker that sends.
-- KEYS: prefix. ARGV: token, milliseconds of the lease, limit of messages, bytes beyond which there are no more.
-- Returns how many workers have begun to send the first one, including this one, then position, row, ...; {}: none.

local lease = base .. 'lease:out'
local sent = tonumber(redis.call('GET', base .. 'sent') or 0)
local found, bytes = {}, 0
for position = sent + 1, sent + ARGV[3] do
  local name = string.format('%.0f', position)
  local row = redis.call('HGET', base .. 'held', name)
  if not row then break end
  found[#found + 1] = name
  found[#found + 1] = row
  bytes = bytes + #row
  if bytes >= tonumber(ARGV[4]) then break end
end
if #found == 0 then return found end
local is_continued = redis.call('GET', lease) == ARGV[1]
if not is_continued and not hold(lease, ARGV[1], ARGV[2]) then return {} end
redis.call('PEXPIRE', lease, ARGV[2])
local attempt = 1
if tonumber(redis.call('GET', base .. 'given') or 0) > sent then
  -- A worker has begun to send the first one, which may not have been the first of those given out with it.
  local begun, times = string.match(redis.call('HGET', base .. 'attempts', 'out') or '', '^(%d+) (%d+)$')
  if begun ~= found[1] then times = 1 end
  attempt = math.max(2, times + (is_continued and 0 or 1))
end
redis.call('SET', base .. 'given', found[#found - 1])
redis.call('HSET', base .. 'attempts', 'out', found[1] .. string.format(' %.0f', attempt))
table.insert(found, 1, attempt)
return found
