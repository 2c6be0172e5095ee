-- The fast path of steps on one key without another writer: reads, and writes of keys that no cache
-- holds. It returns and stores the same as dispatch.lua, except that it does not remove expired
-- keys: only `report_read` could add to them, so that goes to dispatch.lua while there are any. It
-- defines no function, because Redis would create it in every call, which takes longer than a step.

local results, at = { now }, 5
while ARGV[at] and known_run == run_id do
  local name, first, last = ARGV[at], at + 2, at + 1 + ARGV[at + 1]
  local argument, key, result = ARGV[first], ARGV[first + 1], nil

  if name == 'begin' and last == first + 2 then
    if now >= saturated and (not requested or now < requested)
      and not call('ZSCORE', COPIES, key) and call('HEXISTS', PENDING, key) == 0
      and call('HSETNX', WRITES, argument, cmsgpack.pack({ key, 0 })) == 1 then
      call('HSET', PENDING, key, 1)
      call('ZADD', LEASES, now + LEASE_US, argument)
      result = { 0, registrations, requested and 0 or 1 }
    end

  elseif name == 'end' or (name == 'close' and tonumber(key) == registrations) then
    local packed = call('HGET', WRITES, argument)
    local write = packed and cmsgpack.unpack(packed) or {}
    key = write[1]
    -- A key that was held may still be a member when its copies have expired.
    if #write == 2 and write[2] == 0 and call('HGET', PENDING, key) == '1'
      and not call('ZSCORE', COPIES, key) and call('HEXISTS', MEMBERS, key) == 0 then
      call('HDEL', WRITES, argument)
      call('ZREM', LEASES, argument)
      call('HDEL', PENDING, key)
      result = 1
    end

  elseif name == 'report_read' and last == first + 1 then
    local ttl = tonumber(argument)
    if ttl > 0 and now >= uncacheable and call('HEXISTS', PENDING, key) == 0
      and call('ZCARD', COPIES) < KEYS_MOST and call('ZCOUNT', COPIES, '-inf', now) == 0 then
      call('ZADD', COPIES, 'GT', now + LAYERS * ttl + MARGIN_US, key)
      local entry = call('HGET', VERSIONS, key)
      if not entry then
        entry = 'f' .. nonce .. first
        call('HSET', VERSIONS, key, entry)
      end
      result = { ttl, entry }
    end

  elseif name == 'fill' and last == first + 2 then
    if call('HGET', VERSIONS, key) == 'f' .. argument then
      call('HSET', VERSIONS, key, 'v' .. ARGV[last])
      result = 1
    end
  end

  if not result then break end
  results[#results + 1] = result
  at = last + 1
end
if known_run == run_id and not ARGV[at] then return results end
