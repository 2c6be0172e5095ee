-- Moves the cursor of a partition's materialiser, and applies the steps of its copies.
-- KEYS: prefix, lease. ARGV: token, partition, cursor before ('' for none), cursor after; then rows
-- of copy, state before, state after ('' for none). Returns 1; -1: no lease, or another cursor.
-- Skips steps that do not begin at the present state.

local states, partition = base .. 'view', ARGV[2]
local at = 'cursor/' .. partition
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
if (redis.call('HGET', states, at) or '') ~= ARGV[3] then return -1 end
redis.call('HSET', states, at, ARGV[4])
for row = 5, #ARGV, 3 do
  local name, after = partition .. '/' .. ARGV[row], ARGV[row + 2]
  if (redis.call('HGET', states, name) or '') == ARGV[row + 1] then
    if after == '' then
      redis.call('HDEL', states, name)
    else
      redis.call('HSET', states, name, after)
    end
  end
end
return 1
