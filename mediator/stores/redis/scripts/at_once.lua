-- Applies one change of one group to each record, as most updates do. It stands before everything
-- else of the script, and makes no function: Redis makes those anew in every call, and that takes
-- as long as one row does here. It ends at the first row to which there is more, and has done
-- nothing of that; from there on rows go the longer way.
-- KEYS, ARGV and answers are those of update.lua.

if redis.replicate_commands then redis.replicate_commands() end

local answers, n, next_row = {}, 0, nil

if ARGV[3] == '1' and ARGV[4] == '1'
  and (ARGV[6] == '2' or redis.call('EXISTS', prefix .. 'fences') == 0) then
  local call, byte, format, argv = redis.call, string.byte, string.format, ARGV
  local COLON, MINUS = 58, 45 -- digits and the minus sign are below the colon
  local first, words, returned = 1 + argv[2], tonumber(argv[6]), tonumber(argv[5])
  local name, group, is_sum = argv[6 + first], 2 + argv[9 + first], argv[8 + first] == 'inc'
  local version, outbox, clock, indexed = argv[3 + group], KEYS[2], call('TIME'), nil
  local now = clock[1] * 1000000 + clock[2]
  local now_text = format('%.0f', now)
  -- What is removed from the outbox goes with the first entry of a call.
  local entry = { 'MAXLEN', '~', argv[1], '*', 'what', argv[10 + first], 'object', '',
    'operation', '', 'version', now_text, '-' .. name, '', '+' .. name, '' }
  next_row = 11 + first + returned
  while next_row <= #argv do
    local id, after = argv[next_row], argv[next_row + words]
    local key = prefix .. 'r:' .. id
    local held = call('HMGET', key, name, '!m', '!b', unpack(argv, 7, 5 + first))
    local before = held[1]
    if is_sum then
      -- Doubles are exact up to 15 digits.
      local exact = before and #before <= 15 and #after <= 15
        and byte(before) < COLON and byte(after) < COLON
      after = exact and format('%.0f', before + after)
    end
    if not (before and after and held[3]) or held[2] or (held[group] or 0) + 0 >= now then break end
    local from, to
    if before ~= after then
      if indexed == nil then indexed = call('SISMEMBER', prefix .. 'indexed', name) == 1 end
      if indexed then
        from, to = byte(before), byte(after)
        if from >= COLON or to >= COLON or from == MINUS or to == MINUS then break end
      end
    end
    held[group] = now_text
    call('HSET', key, version, now_text, name, after)
    if from then
      local char, index = string.char, prefix .. 'i.' .. name
      local tail = id .. '\0' .. char(math.floor(#id / 256), #id % 256)
      call('ZREM', index, '\2' .. char(128 + #before) .. before .. tail)
      call('ZADD', index, 0, '\2' .. char(128 + #after) .. after .. tail)
    end
    entry[8], entry[10], entry[14], entry[16] = id, argv[next_row + 1], before, after
    call('XADD', outbox, unpack(entry, n == 0 and 1 or 4))
    answers[n + 1] = 1
    for i = 3, 2 + first do answers[n + i - 1] = held[i] end
    n = n + 1 + first + returned
    if returned == 1 then answers[n] = after end
    next_row = next_row + words + 1
  end
  if next_row > #argv then return answers end
end
