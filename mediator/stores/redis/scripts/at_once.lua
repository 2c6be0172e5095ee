-- Applies one change to one record, as most updates are. It stands before everything else of the
-- script, and makes no function: Redis makes those anew in every call, and that takes as long as
-- this does. If there is more to an update it has done nothing, and goes the longer way.
-- KEYS, ARGV and answer are those of update.lua.

if redis.replicate_commands then redis.replicate_commands() end

do
  local call, byte, argv = redis.call, string.byte, ARGV
  local COLON, MINUS = 58, 45 -- digits and the minus sign are below the colon
  local first, words = 1 + argv[2], tonumber(argv[6])
  local at = 11 + first + argv[5]
  -- With one change, only that of one group in one row has so many words.
  if argv[3] == '1' and #argv == at + words
    and (words == 2 or call('EXISTS', prefix .. 'fences') == 0) then
    local name, id, after = argv[6 + first], argv[at], argv[at + words]
    local key, group = prefix .. 'r:' .. id, 2 + argv[9 + first]
    local held = call('HMGET', key, name, '!m', '!b', unpack(argv, 7, 5 + first))
    local before, clock = held[1], call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    if argv[8 + first] == 'inc' then
      -- Doubles are exact up to 15 digits.
      local exact = before and #before <= 15 and #after <= 15
        and byte(before) < COLON and byte(after) < COLON
      after = exact and string.format('%.0f', before + after)
    end
    if before and after and held[3] and not held[2] and (held[group] or 0) + 0 < now then
      local from, to
      if before ~= after and call('SISMEMBER', prefix .. 'indexed', name) == 1 then
        from, to = byte(before), byte(after)
      end
      if not from or (#before <= 15 and #after <= 15
        and from < COLON and to < COLON and from ~= MINUS and to ~= MINUS) then
        local now_text = string.format('%.0f', now)
        held[group] = now_text
        call('HSET', key, argv[3 + group], now_text, name, after)
        if from then
          local char, index = string.char, prefix .. 'i.' .. name
          local tail = id .. '\0' .. char(math.floor(#id / 256), #id % 256)
          call('ZREM', index, '\2' .. char(128 + #before) .. before .. tail)
          call('ZADD', index, 0, '\2' .. char(128 + #after) .. after .. tail)
        end
        call('XADD', KEYS[2], 'MAXLEN', '~', argv[1], '*', 'what', argv[10 + first], 'object', id,
          'operation', argv[at + 1], 'version', now_text, '-' .. name, before, '+' .. name, after)
        if argv[5] == '1' then held[3 + first] = after end
        return { 1, unpack(held, 3, 2 + first + argv[5]) }
      end
    end
  end
end
