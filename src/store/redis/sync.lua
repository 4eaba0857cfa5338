-- Line::sync: what changed since the versions the caller knows. Writes nothing.
--
-- KEYS: the queue's. ARGV: clock, then the known versions of gone, late, settings, revoked.
-- Answer: false for an unknown queue, FENCE on a new server, else { version, incarnation, now, versions of gone, late,
-- settings, revoked, head, tail, live, active, admitted, gone bytes, late numbers, settings,
-- revoked numbers, fences, lost ranges as first and last in turn, whether it is being rebuilt,
-- issued_floor, admit_after }; each of gone, late, settings and revoked is false if the caller
-- knows it. The gone bytes begin with the one that holds head; those missing at the end are zero.

local opened = open()
if opened ~= true then
  return opened
end
local gone, late, settings, revoked = false, false, false, false
if ARGV[2] ~= text(m.v_gone) then
  gone = ''
  if m.head <= m.tail then
    local first, last = math.floor((m.head - m.base) / 8), math.floor((m.tail - m.base) / 8)
    gone = redis.call('GETRANGE', GONE, text(first), text(last))
  end
end
if ARGV[3] ~= text(m.v_late) then
  late = redis.call('ZRANGE', LATE, 0, -1)
end
if ARGV[4] ~= text(m.v_settings) then
  settings = redis.call('HGET', META, 'settings')
end
if ARGV[5] ~= text(m.v_revoked) then
  revoked = redis.call('ZRANGEBYSCORE', REVOKED, '(' .. text(now), '+inf')
end
local ranges = {}
for _, range in ipairs(lost) do
  ranges[#ranges + 1] = range[1]
  ranges[#ranges + 1] = range[2]
end
local active = redis.call('ZCOUNT', ACTIVE, '(' .. text(now), '+inf')
return versioned(m.v_gone, m.v_late, m.v_settings, m.v_revoked, m.head, m.tail, m.live, active,
  m.admitted, gone, late, settings, revoked, m.fences, ranges, m.rebuilding and 1 or 0,
  m.issued_floor, m.admit_after)
