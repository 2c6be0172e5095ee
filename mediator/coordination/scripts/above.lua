-- Appends changes whose version is above the last one of their group.
-- KEYS: prefix. ARGV: generation proposed, who brings them ('' if that does not matter), how often
-- that one has brought something; then rows of partition, group of an object, version, class,
-- document. Answers how many were new, and how often it has been now; or -2: went back.
-- The last version is in `marks` until the change is settled, then in the hash of its time.

local who = ARGV[2]
if who ~= '' and lacks(who, ARGV[3]) then return { -2, 0 } end
begin_generation(ARGV[1])
local period = math.floor(redis.call('TIME')[1] / MARKS_KEPT_S)
local marks = base .. 'marks'
local older = { marks, marks .. ':' .. period, marks .. ':' .. (period - 1) }

local function before(version, group)
  for _, key in ipairs(older) do
    local last = redis.call('HGET', key, group)
    if last and tonumber(last) >= version then return false end
  end
  return true
end

local appended = 0
for at = 4, #ARGV, 5 do
  local group, version = ARGV[at + 1], ARGV[at + 2]
  if before(tonumber(version), group) then
    redis.call('XADD', base .. ARGV[at], '*', 'k', ARGV[at + 3], 'c', ARGV[at + 4])
    redis.call('HSET', marks, group, version)
    appended = appended + 1
  end
end
return { appended, who ~= '' and redis.call('HINCRBY', base .. 'brought', who, 1) or 0 }
