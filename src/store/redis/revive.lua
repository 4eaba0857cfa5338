-- Line::revive: brings a lost place back, for which a genuine token is the evidence.
--
-- KEYS: the queue's. ARGV: clock, user tag, number, time of entry, time of issue, end of the lease
-- the token proves or empty, 1 if it proves a use.
-- Answer: as standing.lua.

local opened = open()
if opened ~= true then
  return opened
end
local tag, seq, entered, issued = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local row = { IS_UNKNOWN, 0, 0, 0, 0 }
if seq > m.tail then
  row = { IS_LOST, 0, 0, 0, 0 } -- whoever asks has to fence first
else
  local entry = take_back(tag, seq, entered, issued)
  if entry then
    if ARGV[6] ~= '' then
      reinstate(tag, entry, tonumber(ARGV[6]), ARGV[7] == '1')
    end
    row = standing_of(tag, entry, false)
  end
end
count_change()
save()
return versioned(row)
