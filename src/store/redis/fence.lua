-- Line::fence: moves the line past everything that has been seen of it.
--
-- KEYS: the queue's. ARGV: clock; the head, the tail and the newest issue of a token that were seen;
-- the gap.
-- Answer: false for an unknown queue, else { version, incarnation, now }.

local RESTORE_TIME, ISSUED_SLACK, VERSION_JUMP = 5000, 100000, 1048576 -- recovery.rs

if not open(true) then
  return false
end
local head, seen_tail = tonumber(ARGV[2]), tonumber(ARGV[3])
local issued, gap = tonumber(ARGV[4]), tonumber(ARGV[5])
local run = server_run()
local new = redis.call('HGET', META, 'run') ~= run
if new then
  redis.call('HSET', META, 'run', run)
  m.fences = m.fences + 1
  m.admit_after = math.max(m.admit_after, now + RESTORE_TIME)
  for _, version in ipairs({ 'v_all', 'v_gone', 'v_late', 'v_settings', 'v_revoked' }) do
    m[version] = m[version] + VERSION_JUMP
  end
end
if seen_tail > MAX_SEQ - gap then
  seen_tail = 0
end
if m.rebuilding then
  if seen_tail > m.tail then
    lose(m.tail + 1, seen_tail)
    m.live = m.live + seen_tail - m.tail
    m.tail = seen_tail
  end
  m.issued_floor = math.max(m.issued_floor, issued - ISSUED_SLACK)
  -- The head moves on to where it was seen before everything was lost: who is in between was served.
  head = math.min(head, m.tail + 1)
  if head > m.head then
    local absent = redis.call(
      'BITCOUNT', GONE, text(m.head - m.base), text(head - 1 - m.base), 'BIT')
    m.live = m.live - (head - m.head - absent)
    m.head = head
    m.forgotten = math.max(m.forgotten, head)
    redis.call('DEL', MARKS)
  end
elseif new or seen_tail > m.tail then
  leave_a_gap(math.min(math.max(m.tail, seen_tail) + gap, MAX_SEQ))
end
if m.v_all ~= before.v_all or m.v_gone ~= before.v_gone
  or m.head ~= before.head or m.tail ~= before.tail then
  m.v_all = m.v_all + 1
end
save()
return versioned()
