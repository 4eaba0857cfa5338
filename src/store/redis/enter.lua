-- Line::enter: users enter in the given order.
--
-- KEYS: the queue's. ARGV: clock, then one user tag after the other.
-- Answer: false for an unknown queue, FENCE on a new server, else { version, incarnation, now, rows }, one row per user:
-- { kind, seq, entered, end of lease, claimed, new }, kinds as in line.lua and those below; for
-- NOT_OPEN the second number is the opening time.

local NOT_OPEN, CLOSED, FULL, REBUILDING = 8, 9, 10, 12

local opened = open()
if opened ~= true then
  return opened
end

local is, late_before = phase(), redis.call('ZCARD', LATE)

-- Here only somebody who comes back changes the late lane.
local function late_waiting()
  return late_before + m.v_late - before.v_late
end

-- Only when nobody waits may a newcomer go in at once.
local function fast_track_is_open()
  return mode == 'auto'
    and now >= m.admit_after
    and m.live == 0
    and late_waiting() == 0
    and available() >= 1
    and active_count() < m.capacity
end

-- Hands out the next number.
local function next_seq(tag)
  local epoch = math.floor(now / EPOCH_MS)
  if m.entered_epoch ~= epoch then
    redis.call('ZADD', TAILS, text(epoch), text(epoch) .. ':' .. text(m.tail))
    -- No judgement looks back further than the longest waiting_ttl, 120 epochs.
    redis.call('ZREMRANGEBYSCORE', TAILS, '-inf', text(epoch - math.max(m.silent, 120) - 2))
    m.entered_epoch = epoch
  end
  m.tail = m.tail + 1
  put(tag, { seq = m.tail, entered = now, claimed = 0, late = false })
  return m.tail
end

local function enter(tag)
  if is == 'not_open' then
    return { NOT_OPEN, m.opens_at, 0, 0, 0, 0 }
  elseif is == 'closed' then
    return { CLOSED, 0, 0, 0, 0, 0 }
  elseif m.rebuilding then
    return { REBUILDING, 0, 0, 0, 0, 0 }
  end
  local entry = entry_of(tag)
  if entry then
    local row = standing_of(tag, entry, false)
    if row[1] <= IS_ACTIVE then
      row[6] = 0
      return row
    end
    -- The index remembers a place that is over: a new one takes its stead.
    bury(entry.seq)
  end
  if m.tail >= MAX_SEQ then
    return { FULL, 0, 0, 0, 0, 0 }
  end
  if fast_track_is_open() then
    local seq = next_seq(tag)
    m.head = seq + 1
    record_head()
    take(1)
    m.admitted = m.admitted + 1
    redis.call('ZADD', ACTIVE, text(now + m.claim_ttl), text(seq))
    return { IS_ACTIVE, seq, now, now + m.claim_ttl, 0, 1 }
  end
  -- Whoever falls silent no longer waits, but is remembered until the head passes.
  local uncalled = m.tail + 1 - m.head - lost_from(m.head)
  if m.live + late_waiting() >= m.max_waiting or uncalled >= m.max_waiting * 4 then
    return { FULL, 0, 0, 0, 0, 0 }
  end
  m.live = m.live + 1
  return { IS_WAITING, next_seq(tag), now, 0, 0, 1 }
end

local rows = {}
for at = 2, #ARGV do
  rows[at - 1] = enter(ARGV[at])
end
if m.tail ~= before.tail or m.live ~= before.live
  or m.v_gone ~= before.v_gone or m.v_late ~= before.v_late then
  m.v_all = m.v_all + 1
end
save()
return versioned(rows)
