-- Reserves all claims of a write or none, for a record that has its intent.
-- KEYS: class prefix, claims of the class. ARGV: id, intent, then alternating constraints and claims.
-- Returns a claim of another record: constraint, its key, the intent that reserves it ('': claimed);
-- false: none.

local key, constraints, wanted = prefix .. 'r:' .. ARGV[1], {}, {}
if redis.call('HGET', key, '!m') ~= ARGV[2] then return false end
for i = 3, #ARGV, 2 do
  constraints[#constraints + 1], wanted[#wanted + 1] = ARGV[i], ARGV[i + 1]
end
local taken = claims().taken(constraints, wanted, key)
if taken then return taken end
claims().reserve(constraints, wanted, key)
return false
