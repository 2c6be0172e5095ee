-- Most steps as they mostly are: of one key that nobody else writes; reads, and writes of what no
-- cache holds. They answer what run.lua would and leave behind what it would, but for what has
-- expired: none of them adds to that except `read`, which goes the longer way while there is any.
-- No function is made here, nor anything that the longer way needs: that takes longer than a step.

local answers, at = { now }, 5
while ARGV[at] and lived == life do
  local name, first, last = ARGV[at], at + 2, at + 1 + ARGV[at + 1]
  local told, key, answer = ARGV[first], ARGV[first + 1], nil

  if name == 'begin' and last == first + 2 then
    if now >= saturated and (not asked or now < asked)
      and not call('ZSCORE', HANDED, key) and call('HEXISTS', MARKS, key) == 0
      and call('HSETNX', WRITES, told, cmsgpack.pack({ key, 0 })) == 1 then
      call('HSET', MARKS, key, 1)
      call('ZADD', LEASES, now + LEASE_US, told)
      answer = { 0, registrations, asked and 0 or 1 }
    end

  elseif name == 'end' or (name == 'close' and tonumber(key) == registrations) then
    local packed = call('HGET', WRITES, told)
    local write = packed and cmsgpack.unpack(packed) or {}
    key = write[1]
    -- One that was held may still be a member when it is not handed out any more.
    if #write == 2 and write[2] == 0 and call('HGET', MARKS, key) == '1'
      and not call('ZSCORE', HANDED, key) and call('HEXISTS', MEMBERS, key) == 0 then
      call('HDEL', WRITES, told)
      call('ZREM', LEASES, told)
      call('HDEL', MARKS, key)
      answer = 1
    end

  elseif name == 'read' and last == first + 1 then
    local ttl = tonumber(told)
    if ttl > 0 and now >= uncacheable and call('HEXISTS', MARKS, key) == 0
      and call('ZCARD', HANDED) < KEYS_MOST and call('ZCOUNT', HANDED, '-inf', now) == 0 then
      call('ZADD', HANDED, 'GT', now + LAYERS * ttl + MARGIN_US, key)
      local entry = call('HGET', VERSIONS, key)
      if not entry then
        entry = 'f' .. nonce .. first
        call('HSET', VERSIONS, key, entry)
      end
      answer = { ttl, entry }
    end

  elseif name == 'fill' and last == first + 2 then
    if call('HGET', VERSIONS, key) == 'f' .. told then
      call('HSET', VERSIONS, key, 'v' .. ARGV[last])
      answer = 1
    end
  end

  if not answer then break end
  answers[#answers + 1] = answer
  at = last + 1
end
if lived == life and not ARGV[at] then return answers end
