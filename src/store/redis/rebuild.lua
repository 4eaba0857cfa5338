-- Line::rebuilt: a line made of what is left of it.
--
-- KEYS, ARGV: as in create.lua, then its incarnation; the head, the tail and the newest issue of a
-- token that were seen; the gap; 1 if a copy follows: gone bytes from the one that holds the head,
-- users admitted, the five versions, numbers in the late lane and (second, head) pairs of the last
-- moments, both as numbers with spaces between them.
-- Answer: 0 done, 1 known, 2 refused.

local DONE, KNOWN, REFUSED = 0, 1, 2
local REBUILD_MAX_EPOCHS, RESTORE_TIME = 10, 5000 -- recovery.rs
local ISSUED_SLACK, VERSION_JUMP = 100000, 1048576
local GIVES_WAY_FOR, TRACES_LAST = 60000, 900000

local at = FIRST + #FIELDS
local incarnation, seen_head = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
local seen_tail, issued, gap = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
local has_copy = ARGV[at + 5] == '1'

local last = tonumber(redis.call('GET', INCARNATION) or 0)

-- Whether the line that is here may give way; see Line::compare.
local function may_give_way()
  if incarnation > m.inc then
    return incarnation > last and issued + TRACES_LAST >= now
  end
  return m.previous < incarnation and now <= m.created + GIVES_WAY_FOR
    and issued + TRACES_LAST >= m.created
end

if open(true) then
  if m.inc == incarnation then
    return KNOWN
  elseif not may_give_way() then
    return REFUSED
  end
elseif for_tests == '1' and ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
end
create(incarnation, 0, 0)
if last > incarnation then
  redis.call('SET', INCARNATION, text(last)) -- what was given up stays known
end
lost, lost_changed = {}, false
open(true)

local epoch = math.floor(now / EPOCH_MS)
m.tail = math.min(seen_tail, MAX_SEQ - gap)
m.head = math.min(math.max(seen_head, 1), m.tail + 1)
m.base = m.head - m.head % 64
m.fences = 1
m.known_from = epoch
if m.tail > 0 then
  lose(1, m.tail)
end
if not has_copy then
  m.live = m.tail + 1 - m.head
  m.forgotten = m.head
  m.rebuilding = epoch
  m.issued_floor = math.max(0, issued - ISSUED_SLACK)
  m.admit_after = (epoch + REBUILD_MAX_EPOCHS + 1) * EPOCH_MS
  save()
  return DONE
end

local gone = ARGV[at + 6]
if #gone > 0 then
  redis.call('SETRANGE', GONE, text(math.floor((m.head - m.base) / 8)), gone)
end
if m.head <= m.tail then
  local absent = redis.call(
    'BITCOUNT', GONE, text(m.head - m.base), text(m.tail - m.base), 'BIT')
  m.live = m.tail + 1 - m.head - absent
end
m.admitted = tonumber(ARGV[at + 7])
for index, version in ipairs({ 'v_all', 'v_gone', 'v_late', 'v_settings', 'v_revoked' }) do
  m[version] = tonumber(ARGV[at + 7 + index]) + VERSION_JUMP
end
for seq in string.gmatch(ARGV[at + 13], '%d+') do
  if tonumber(seq) < m.head then
    redis.call('ZADD', LATE, seq, seq)
  end
end
m.forgotten = m.head
local first = true
for second, head in string.gmatch(ARGV[at + 14], '(%d+) (%d+)') do
  if first then
    m.forgotten, first = math.min(tonumber(head), m.head), false
  end
  redis.call('ZADD', MARKS, head, second)
end
leave_a_gap(m.tail + gap)
m.admit_after = now + RESTORE_TIME
save()
return DONE
