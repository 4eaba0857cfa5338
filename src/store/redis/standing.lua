-- Line::standing: where a user stands.
--
-- KEYS: the queue's. ARGV: clock, user tag, number or empty, "pass" or "poll".
-- Answer: false for an unknown queue, FENCE on a new server, else { version, incarnation, now, row }, the row being
-- { kind, seq, entered, end of lease, claimed }, kinds as in line.lua.

local opened = open()
if opened ~= true then
  return opened
end
local tag, seq, pass = ARGV[2], ARGV[3], ARGV[4] == 'pass'
local entry = entry_of(tag)
if not entry or (seq ~= '' and seq ~= text(entry.seq)) then
  local lost_place = seq ~= '' and may_be_lost(tonumber(seq))
  return versioned({ lost_place and IS_LOST or IS_UNKNOWN, 0, 0, 0, 0 })
end
local row = standing_of(tag, entry, pass)
if m.v_gone ~= before.v_gone or m.v_late ~= before.v_late then
  m.v_all = m.v_all + 1
end
save()
return versioned(row)
