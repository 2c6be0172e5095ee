-- Takes the steps, one after the other.

expire(ARGV[4])
local answers, at = { now }, 5
while ARGV[at] do
  local last = at + 1 + ARGV[at + 1]
  answers[#answers + 1] = steps[ARGV[at]](at + 2, last)
  at = last + 1
end
if flipped then call('HINCRBY', META, 'generation', 1) end
return answers
