-- Line::leave: ends the place of a user.
--
-- KEYS: the queue's. ARGV: clock, user tag, number or empty.
-- Answer: false for an unknown queue, FENCE on a new server, else { version, incarnation, now, 1 = gave | 0 = nothing }.

local opened = open()
if opened ~= true then
  return opened
end
local tag, wanted = ARGV[2], ARGV[3]
local entry, seq = entry_of(tag), nil
if entry and (wanted == '' or wanted == text(entry.seq)) then
  redis.call('HDEL', USERS, tag)
  seq = entry.seq
elseif wanted ~= '' and tonumber(wanted) <= m.tail and may_be_lost(tonumber(wanted)) then
  -- The store has lost the entry, but leaving is final all the same.
  seq = tonumber(wanted)
else
  return versioned(0)
end
local gave, ends = 1, lease(seq)
if ends then
  redis.call('ZADD', ACTIVE, text(math.min(ends, now + REVOCATION_DELAY)), text(seq))
  redis.call('ZREMRANGEBYSCORE', REVOKED, '-inf', text(now))
  redis.call('ZADD', REVOKED, text(now + REVOCATION_KEPT), text(seq))
  redis.call('PEXPIRE', REVOKED, 6 * REVOCATION_KEPT)
  m.v_revoked = m.v_revoked + 1
elseif seq < m.head and not redis.call('ZSCORE', LATE, text(seq)) then
  gave = 0
end
take_out(seq)
bury(seq)
if m.v_gone ~= before.v_gone or m.v_late ~= before.v_late or m.v_revoked ~= before.v_revoked then
  m.v_all = m.v_all + 1
end
save()
return versioned(gave)
