-- Exact arithmetic on 64-bit integers given as decimal text. Lua's numbers are doubles, so results
-- that can exceed 2^53 are computed on limbs: base 10^7, least first. Beyond the range it returns nil.

local byte, sub, gsub, format = string.byte, string.sub, string.gsub, string.format
local floor = math.floor
local MINUS = 45
local BASE = 10000000
local SAFE_DIGITS = 15

local function limbs_of(text)
  local digits = gsub(text, '^-', '')
  return {
    tonumber(sub(digits, -7)),
    tonumber(sub(digits, -14, -8)) or 0,
    tonumber(sub(digits, -21, -15)) or 0,
  }, byte(text) == MINUS
end

local function text_of(limbs, negative)
  local parts = {}
  for i = #limbs, 1, -1 do parts[#parts + 1] = format('%07.0f', limbs[i]) end
  local digits = gsub(table.concat(parts), '^0+', '')
  if digits == '' then return '0' end
  local most = negative and '9223372036854775808' or '9223372036854775807'
  if #digits > 19 or (#digits == 19 and digits > most) then return nil end
  return negative and '-' .. digits or digits
end

local function carry(limbs)
  local over = 0
  for i = 1, #limbs do
    local limb = limbs[i] + over
    over = floor(limb / BASE)
    limbs[i] = limb - over * BASE
  end
  limbs[#limbs + 1] = over
  return limbs
end

local function add(a, b)
  if #a <= SAFE_DIGITS and #b <= SAFE_DIGITS then return format('%.0f', a + b) end
  local left, left_negative = limbs_of(a)
  local right, right_negative = limbs_of(b)
  local sum, negative = {}, false
  for i = 1, 3 do
    sum[i] = (left_negative and -left[i] or left[i]) + (right_negative and -right[i] or right[i])
    -- If signs differ within the sum, no limb exceeds the base: the highest limb decides.
    if sum[i] ~= 0 then negative = sum[i] < 0 end
  end
  if negative then
    for i = 1, 3 do sum[i] = -sum[i] end
  end
  return text_of(carry(sum), negative)
end

local function mul(a, b)
  if #a + #b <= SAFE_DIGITS then return format('%.0f', a * b + 0) end
  local left, left_negative = limbs_of(a)
  local right, right_negative = limbs_of(b)
  -- A sum of three products of limbs is below 2^53, hence exact.
  local product = { 0, 0, 0, 0, 0 }
  for i = 1, 3 do
    for j = 1, 3 do product[i + j - 1] = product[i + j - 1] + left[i] * right[j] end
  end
  return text_of(carry(product), left_negative ~= right_negative)
end

local function less(a, b)
  local a_negative, b_negative = byte(a) == MINUS, byte(b) == MINUS
  if a_negative ~= b_negative then return a_negative end
  -- There are no leading zeros, so of two numbers of one sign the longer is farther from zero.
  if #a ~= #b then return (#a < #b) ~= a_negative end
  return a ~= b and (a < b) ~= a_negative
end

local function negate(words)
  local over = 1
  for i = 1, 4 do
    local word = 65535 - words[i] + over
    over = word > 65535 and 1 or 0
    words[i] = word - over * 65536
  end
end

-- The four 16-bit words of the two's complement, least first.
local function words_of(text)
  local limbs, negative = limbs_of(text)
  local words = {}
  for w = 1, 4 do
    local rest = 0
    for i = 3, 1, -1 do
      local current = rest * BASE + limbs[i]
      limbs[i] = floor(current / 65536)
      rest = current - limbs[i] * 65536
    end
    words[w] = rest
  end
  if negative then negate(words) end
  return words
end

local function bitwise(operation, a, b)
  local left, right = words_of(a), words_of(b)
  for i = 1, 4 do left[i] = operation(left[i], right[i]) end
  local negative = left[4] >= 32768
  if negative then negate(left) end
  local limbs = { 0, 0, 0 }
  for w = 4, 1, -1 do
    local over = left[w]
    for i = 1, 3 do
      local current = limbs[i] * 65536 + over
      over = floor(current / BASE)
      limbs[i] = current - over * BASE
    end
  end
  return text_of(limbs, negative)
end

return { add = add, mul = mul, less = less, bitwise = bitwise }
