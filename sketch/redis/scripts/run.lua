-- Takes the steps that are left, one after the other.

local home = {
  renew = lives, layout = lives, adopt = lives, expire = snapshots, snapshot = snapshots,
  take = purges, purged = purges, registered = queries, changed = queries, query = results,
  begin = writes, ['end'] = writes, close = writes, orphans = writes, read = reads, fill = reads,
  state = state,
}

if lived ~= life then lives().lost() end
expire(ARGV[4])
while ARGV[at] do
  local name, last = ARGV[at], at + 1 + ARGV[at + 1]
  answers[#answers + 1] = home[name]()[name](at + 2, last)
  at = last + 1
end
if flipped then call('HINCRBY', META, 'generation', 1) end
return answers
