-- Takes the steps that are left, one after the other.

local module_of = {
  invalidate = layout, layout = layout, adopt = layout, expire = snapshots, snapshot = snapshots,
  take_purges = purges, acknowledge_purges = purges, report_query = queries,
  registrations = queries, invalidate_results = queries, begin = writes, ['end'] = writes, close = writes, orphans = writes,
  report_read = reads, fill = reads, state = state,
}

if known_run ~= run_id then layout().lost() end
expire(ARGV[4])
while ARGV[at] do
  local name, last = ARGV[at], at + 1 + ARGV[at + 1]
  results[#results + 1] = module_of[name]()[name](at + 2, last)
  at = last + 1
end
if flipped then call('HINCRBY', META, 'revision', 1) end
return results
