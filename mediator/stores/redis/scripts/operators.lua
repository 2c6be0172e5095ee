-- The effect of each change on a field: apply(code, stored, argument, limit, native) returns the new
-- text (false: missing) and, if the change is refused, the reason. It writes nothing; alter() then
-- changes a collection's separate key.

local call = redis.call
local byte, sub, format = string.byte, string.sub, string.format
local HUGE = math.huge

local function float_of(value)
  -- Comparisons with NaN are false, so NaN is also refused.
  if not (value > -HUGE and value < HUGE) then return nil, 'overflow' end
  return 'f' .. format('%.17g', value + 0) -- no negative zero
end

local function integer_of(text)
  if not text then return nil, 'overflow' end
  return text
end

local function is_float(text) return byte(text) == 102 end

local function arithmetic(on_integers, on_floats)
  return function(before, argument)
    if is_float(argument) then
      return float_of(on_floats(tonumber(sub(before or 'f0', 2)), tonumber(sub(argument, 2))))
    end
    return integer_of(on_integers(before or '0', argument))
  end
end

local function is_less(a, b)
  local tag = byte(a)
  if tag == 102 then return tonumber(sub(a, 2)) < tonumber(sub(b, 2)) end
  if tag == 117 then return int64().less(sub(a, 2), sub(b, 2)) end
  return int64().less(a, b)
end

-- The reason why a number violates its field's bounds, "low high", of which either can be missing.
local function beyond(text, bounds)
  local low, high = string.match(bounds, '^(%S*) (%S*)$')
  if low ~= '' and is_less(text, low) then return 'below_minimum' end
  if high ~= '' and is_less(high, text) then return 'above_maximum' end
end

local function bits(operation)
  return function(before, argument) return int64().bitwise(operation, before or '0', argument) end
end

local function grown(marker, size_of, added)
  return function(before, argument, limit, native)
    if limit == '' then return marker end
    local size, more = before and size_of(native) or 0, added(argument, before and native)
    if more and size + more > tonumber(limit) then return nil, 'too_long' end
    return marker
  end
end

local function one() return 1 end

-- nil: the set has it already and stays unchanged, however long.
local function new_member(argument, native)
  if native and call('SISMEMBER', native, argument) == 1 then return nil end
  return 1
end

local function new_keys(argument, native)
  local count = 0
  for i = 1, #argument, 2 do
    if not native or call('HEXISTS', native, argument[i]) == 0 then count = count + 1 end
  end
  return count
end

local function size_by(command)
  return function(native) return call(command, native) end
end

local function keep(_, _, _, _, stored) return stored end

local rules = {
  ['collection'] = function(_, argument) return argument[1] end,
  ['inc'] = arithmetic(int64().add, function(a, b) return a + b end),
  ['mul'] = arithmetic(int64().mul, function(a, b) return a * b end),
  ['min'] = function(before, argument)
    return (before and not is_less(argument, before)) and before or argument
  end,
  ['max'] = function(before, argument)
    return (before and not is_less(before, argument)) and before or argument
  end,
  ['bit_and'] = bits(bit.band),
  ['bit_or'] = bits(bit.bor),
  ['bit_xor'] = bits(bit.bxor),
  ['push'] = grown('L', size_by('LLEN'), one),
  ['push_front'] = grown('L', size_by('LLEN'), one),
  ['add_to_set'] = grown('S', size_by('SCARD'), new_member),
  ['put'] = grown('M', size_by('HLEN'), new_keys),
  ['pop'] = keep,
  ['shift'] = keep,
  ['remove_items'] = keep,
  ['remove_member'] = keep,
  ['remove_key'] = keep,
}

local NUMERIC = { inc = true, mul = true, min = true, max = true,
  bit_and = true, bit_or = true, bit_xor = true }

-- Applies a change that was not refused to a collection's separate key.
local alterations = {
  ['collection'] = function(native, argument)
    local fill = { L = 'RPUSH', S = 'SADD', M = 'HSET' }
    local marker = table.remove(argument, 1)
    if #argument > 0 then records().in_parts(fill[marker], native, argument) end
  end,
  ['push'] = function(native, argument) call('RPUSH', native, argument) end,
  ['push_front'] = function(native, argument) call('LPUSH', native, argument) end,
  ['add_to_set'] = function(native, argument) call('SADD', native, argument) end,
  ['put'] = function(native, argument)
    if #argument > 0 then records().in_parts('HSET', native, argument) end
  end,
  ['pop'] = function(native) call('RPOP', native) end,
  ['shift'] = function(native) call('LPOP', native) end,
  ['remove_items'] = function(native, argument) call('LREM', native, 0, argument) end,
  ['remove_member'] = function(native, argument) call('SREM', native, argument) end,
  ['remove_key'] = function(native, argument) call('HDEL', native, argument) end,
}


local function apply(code, stored, argument, limit, native)
  -- A null counts as missing, and stays null if there is nothing to remove.
  local before = stored and stored ~= 'n' and stored or nil
  local text, reason = rules[code](before, argument, limit, native, stored)
  if text and limit ~= '' and NUMERIC[code] then reason = beyond(text, limit) end
  return text or false, reason
end

-- A collection that is replaced or removed loses its key first.
local function alter(code, stored, argument, native)
  local change = alterations[code]
  if (code == 'collection' or not change) and records().MARKERS[stored] then
    call('UNLINK', native)
  end
  if change then change(native, argument) end
end

return { apply = apply, alter = alter }
