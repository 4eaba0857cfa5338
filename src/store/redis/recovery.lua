-- Bringing lost places back: shared by revive.lua and restore.lua. The reference is
-- src/queue/line/recovery.rs.

-- Whether the place a user has in the index gives way to a lost one: the lower number counts, but
-- an active place stays.
local function yields(tag, other, seq)
  local kind = standing_of(tag, other, false)[1]
  if (kind == IS_WAITING or kind == IS_LATE) and other.seq > seq then
    take_out(other.seq)
    bury(other.seq)
    return true
  elseif kind > IS_ACTIVE and other.seq < seq then
    bury(other.seq)
    return true
  end
  return false
end

-- Makes the index entry of a place again, unless it is there or may not come back. Answers the
-- entry if the place is the user's now.
local function take_back(tag, seq, entered, issued)
  local known = entry_of(tag)
  if known and known.seq == seq then
    return known
  end
  if not may_be_lost(seq) or issued < m.issued_floor then
    return nil
  end
  if known and not yields(tag, known, seq) then
    take_out(seq)
    bury(seq)
    return nil
  end
  local entry = { seq = seq, entered = entered, claimed = 0, late = false }
  put(tag, entry)
  return entry
end

-- Makes the place of an index entry active, if there is room for it or nobody is admitted yet.
-- True if it is active then by this.
local function reinstate(tag, entry, ends, claimed)
  local active = lease(entry.seq)
  local room = now < m.admit_after or active or active_count() < m.capacity
  if ends <= now or not room then
    return false
  end
  take_out(entry.seq)
  redis.call('ZADD', ACTIVE, text(math.max(ends, active or now)), text(entry.seq))
  if claimed and entry.claimed == 0 then
    entry.claimed = now
    put(tag, entry)
  end
  return true
end

local function count_change()
  if m.v_gone ~= before.v_gone or m.v_late ~= before.v_late then
    m.v_all = m.v_all + 1
  end
end
