-- The messages held that are next in order, for the one worker that sends.
-- KEYS: prefix. ARGV: token, milliseconds of the lease, how many.
-- Returns 1 if the first one was given to a worker before and else 0, then position, row, ...; {}: none.

local lease = base .. 'lease:out'
local sent = tonumber(redis.call('GET', base .. 'sent') or 0)
local found = {}
for position = sent + 1, sent + ARGV[3] do
  local name = string.format('%.0f', position)
  local row = redis.call('HGET', base .. 'held', name)
  if not row then break end
  found[#found + 1] = name
  found[#found + 1] = row
end
if #found == 0 then return found end
if redis.call('GET', lease) ~= ARGV[1] and not hold(lease, ARGV[1], ARGV[2]) then return {} end
redis.call('PEXPIRE', lease, ARGV[2])
local given = tonumber(redis.call('GET', base .. 'given') or 0)
redis.call('SET', base .. 'given', found[#found - 1])
table.insert(found, 1, given > sent and 1 or 0)
return found
