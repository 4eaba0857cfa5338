-- Line::admit: admits from the late lane and from the head of the line. For a closed queue it sees
-- to it that its keys expire a day after the last lease.
--
-- KEYS: the queue's. ARGV: clock, the most to admit, "tick" or "operator".
-- Answer: false for an unknown queue, FENCE on a new server, else { version, incarnation, now, count, late, head }.

local DAY = 24 * 3600 * 1000
local BATCH = 2000 -- members a ZADD; unpack is limited

local opened = open()
if opened ~= true then
  return opened
end
local by_tick = ARGV[3] == 'tick'

-- Sets the time to live of the keys once, and again for keys made or leases prolonged since.
local function expire()
  local last = tonumber(redis.call('ZRANGE', ACTIVE, -1, -1, 'WITHSCORES')[2] or 0)
  local at = math.max(last + DAY, m.expires_at or now + DAY)
  for _, key in ipairs(KEYS) do
    if at ~= m.expires_at or redis.call('PTTL', key) == -1 then
      redis.call('PEXPIRE', key, text(math.max(1, at - now)))
    end
  end
  m.expires_at = at
end

local function budget(late_waiting)
  if mode == 'pass_all' or mode == 'closed' or (mode == 'paused' and by_tick) then
    return 0
  end
  if phase() ~= 'open' or now < m.admit_after then
    return 0
  end
  local pace = by_tick and available() or math.huge
  return math.min(pace, m.capacity - active_count(), m.live + late_waiting)
end

if phase() == 'closed' then
  expire()
end
local late_waiting = redis.call('ZCARD', LATE)
local count = math.min(budget(late_waiting), tonumber(ARGV[2]), MAX_ADMITTED)
if count <= 0 then
  save()
  return versioned(0, 0, m.head)
end

local until_, batch = text(now + m.claim_ttl), {}
local function flush()
  if #batch > 0 then
    redis.call('ZADD', ACTIVE, unpack(batch))
    batch = {}
  end
end
local function admit(seq)
  batch[#batch + 1] = until_
  batch[#batch + 1] = seq
  if #batch >= 2 * BATCH then
    flush()
  end
end

-- The late lane gets the turns that fall into this call, or whatever the line cannot use.
local turns = math.ceil((m.admitted + count) / LATE_SHARE) - math.ceil(m.admitted / LATE_SHARE)
local late_share = math.min(math.max(turns, count - m.live), late_waiting)
if late_share > 0 then
  local popped = redis.call('ZPOPMIN', LATE, late_share)
  for at = 1, #popped, 2 do
    admit(popped[at])
  end
  m.v_late = m.v_late + 1
end

-- Walks the runs of zeros from the head. Beyond the stored bits everything is zero; BITPOS must
-- not be asked there, nor about a missing key.
local wanted = math.min(count - late_share, m.live)
local stored, left = redis.call('STRLEN', GONE) * 8, wanted
while left > 0 do
  local first, stop = m.head, m.head + left
  if first - m.base < stored then
    local zero = redis.call('BITPOS', GONE, 0, text(first - m.base), -1, 'BIT')
    first = m.base + (zero < 0 and stored or zero)
    stop = first + left
    if first - m.base < stored then
      local one = redis.call('BITPOS', GONE, 1, text(first - m.base), -1, 'BIT')
      if one >= 0 then
        stop = math.min(stop, m.base + one)
      end
    end
  end
  stop = math.min(stop, m.tail + 1)
  if first >= stop then
    break
  end
  for seq = first, stop - 1 do
    admit(text(seq))
  end
  left = left - (stop - first)
  m.head = stop
end
flush()

local from_line = wanted - left
count = late_share + from_line
m.live = m.live - from_line
if by_tick then
  take(count)
end
if from_line > 0 then
  record_head()
end
m.admitted = m.admitted + count
m.v_all = m.v_all + 1
save()
return versioned(count, late_share, m.head)
