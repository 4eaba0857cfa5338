-- Line::restore: brings leases back while nobody is admitted.
--
-- KEYS: the queue's. ARGV: clock, then for each lease: user tag, number, time of entry, its end, 1
-- if the place was used.
-- Answer: false for an unknown queue, FENCE on a new server, else { version, incarnation, now, how
-- many are active by this }.

local opened = open()
if opened ~= true then
  return opened
end
local restored = 0
for at = 2, #ARGV, 5 do
  local tag, seq, entered = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local ends, claimed = tonumber(ARGV[at + 3]), ARGV[at + 4] == '1'
  if now < m.admit_after and seq <= m.tail and ends > now then
    local entry = take_back(tag, seq, entered, math.huge)
    if entry and reinstate(tag, entry, ends, claimed) then
      restored = restored + 1
    end
  end
end
if restored > 0 then
  m.v_all = m.v_all + 1
end
save()
return versioned(restored)
