-- Appends changes whose version is above the last one of their group.
-- KEYS: prefix. ARGV: proposed generation, writer, how often the writer has appended; then rows of
-- partition, group of an object, version, class, document.
-- Returns the number of new changes (-2: the feed rolled back), and how often the writer has appended
-- by now. The last version is in `versions` until the change is acknowledged, then in the hash of its
-- period.

local writer = ARGV[2]
if lacks(writer, ARGV[3]) then return { -2, 0 } end
begin_generation(ARGV[1])
local period = math.floor(redis.call('TIME')[1] / VERSION_RETENTION_S)
local versions = base .. 'versions'
-- With the previous period, a version is known for `VERSION_RETENTION_S` at least.
local hashes = { versions, versions .. ':' .. period, versions .. ':' .. (period - 1) }

local function is_newer(version, group)
  for _, key in ipairs(hashes) do
    local last = redis.call('HGET', key, group)
    if last and tonumber(last) >= version then return false end
  end
  return true
end

local appended = 0
for at = 4, #ARGV, 5 do
  local group, version = ARGV[at + 1], ARGV[at + 2]
  if is_newer(tonumber(version), group) then
    append_change(ARGV[at], ARGV[at + 3], ARGV[at + 4])
    redis.call('HSET', versions, group, version)
    appended = appended + 1
  end
end
return { appended, redis.call('HINCRBY', base .. 'appends', writer, 1) }
