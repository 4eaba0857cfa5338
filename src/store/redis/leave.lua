-- Line::leave: ends the place of a user.
--
-- KEYS: the queue's. ARGV: clock, user tag, number or empty.
-- Answer: false for an unknown queue, else { version, incarnation, now, 1 = gave | 0 = nothing }.

if not open() then
  return false
end
local tag, wanted = ARGV[2], ARGV[3]
local entry = entry_of(tag)
if not entry or (wanted ~= '' and wanted ~= text(entry.seq)) then
  return versioned(0)
end
redis.call('HDEL', USERS, tag)
local seq, gave = entry.seq, 0
if seq >= m.head then
  gave = 1
  if redis.call('SETBIT', GONE, text(seq - m.base), 1) == 0 then
    m.live = m.live - 1
    m.v_gone = m.v_gone + 1
  end
elseif redis.call('ZREM', LATE, text(seq)) == 1 then
  gave = 1
  m.v_late = m.v_late + 1
else
  local ends = lease(seq)
  if ends then
    gave = 1
    redis.call('ZADD', ACTIVE, text(math.min(ends, now + REVOCATION_DELAY)), text(seq))
    redis.call('ZREMRANGEBYSCORE', REVOKED, '-inf', text(now))
    redis.call('ZADD', REVOKED, text(now + REVOCATION_KEPT), text(seq))
    redis.call('PEXPIRE', REVOKED, 6 * REVOCATION_KEPT)
    m.v_revoked = m.v_revoked + 1
  end
end
if m.v_gone ~= before.v_gone or m.v_late ~= before.v_late or m.v_revoked ~= before.v_revoked then
  m.v_all = m.v_all + 1
end
save()
return versioned(gave)
