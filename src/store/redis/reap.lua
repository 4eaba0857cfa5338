-- Line::reap: marks the silent absent, by operations on whole bitmaps.
--
-- KEYS: the queue's, two for scratch, then the bits and the gateways of each epoch from the last
-- one back. ARGV: clock, the current epoch, how many epochs back KEYS reach.
-- Answer: false for an unknown queue, FENCE on a new server, else { kind, a, b }: ABSENT with how
-- many; ALREADY; INCOMPLETE; or ASK_AGAIN, because the store's clock says epoch a and judging looks
-- at b epochs.

local REBUILD_EPOCHS, REBUILD_MAX_EPOCHS = 2, 10 -- recovery.rs
local ABSENT, ALREADY, INCOMPLETE, ASK_AGAIN = 0, 1, 2, 3
local SILENT, BEFORE = KEYS[10], KEYS[11]

local opened = open()
if opened ~= true then
  return opened
end
local current = math.floor(now / EPOCH_MS)
if m.judged >= current then
  return { ALREADY, 0, 0 }
end

-- Those who were heard are the line; admission begins, and newcomers may enter.
local function end_rebuilding()
  if m.rebuilding then
    m.rebuilding = nil
    m.admit_after = now
    leave_a_gap(math.min(m.tail + GAP, MAX_SEQ))
    m.v_all = m.v_all + 1
  end
end

-- How many epochs back the silent are judged now.
local silent = m.silent
if m.rebuilding then
  silent = math.max(0, current - m.rebuilding - 1)
  if silent > REBUILD_MAX_EPOCHS then
    end_rebuilding()
    save()
  end
  if silent > REBUILD_MAX_EPOCHS or silent < REBUILD_EPOCHS then
    return { INCOMPLETE, 0, 0 }
  end
end
local reach = silent + 1
if ARGV[2] ~= text(current) or ARGV[3] ~= text(reach) then
  return { ASK_AGAIN, current, reach }
end

local function bits(back)
  return KEYS[10 + 2 * back]
end
local function gateways(back)
  return KEYS[11 + 2 * back]
end

-- Each epoch was reported, and no gateway that reported one of them, or the one before, is missing
-- from the next.
local function complete()
  if current - silent < m.known_from then
    return false
  end
  for back = 1, silent do
    if redis.call('EXISTS', gateways(back)) == 0 then
      return false
    end
    if current - back - 1 >= m.known_from then
      for _, gateway in ipairs(redis.call('HKEYS', gateways(back + 1))) do
        if redis.call('HEXISTS', gateways(back), gateway) == 0 then
          return false
        end
      end
    end
  end
  return true
end

-- The last number that had entered when the judged epochs began.
local function judged_up_to()
  local mark = redis.call(
    'ZRANGEBYSCORE', TAILS, text(current - silent), '+inf', 'LIMIT', 0, 1)[1]
  local tail = mark and tonumber(string.match(mark, ':(%d+)$')) or m.tail
  return math.min(tail, m.tail)
end

-- Marks the silent among the numbers from head to `last`; answers how many were not gone before.
local function mark_silent(last)
  local first = m.head - m.head % 8
  local length = math.floor((last - first) / 8) + 1
  redis.call('DEL', SILENT)
  for back = 1, silent do
    local start = tonumber(redis.call('HGET', gateways(back), 'first'))
    local at = (first - start) / 8 -- an epoch begins at a base, which the head has passed
    redis.call('SET', BEFORE, redis.call('GETRANGE', bits(back), text(at), text(at + length - 1)))
    redis.call('BITOP', 'OR', SILENT, SILENT, BEFORE)
  end
  if redis.call('STRLEN', SILENT) < length then
    redis.call('SETRANGE', SILENT, text(length - 1), '\0')
  end
  redis.call('BITOP', 'NOT', SILENT, SILENT)
  for bit = 0, m.head - first - 1 do
    redis.call('SETBIT', SILENT, bit, 0)
  end
  for bit = last - first + 1, length * 8 - 1 do
    redis.call('SETBIT', SILENT, text(bit), 0)
  end
  local at = (first - m.base) / 8
  redis.call('SET', BEFORE, redis.call('GETRANGE', GONE, text(at), text(at + length - 1)))
  local gone_before = redis.call('BITCOUNT', BEFORE)
  redis.call('BITOP', 'OR', SILENT, SILENT, BEFORE)
  local absent = redis.call('BITCOUNT', SILENT) - gone_before
  if absent > 0 then
    redis.call('SETRANGE', GONE, text(at), redis.call('GET', SILENT))
  end
  redis.call('DEL', SILENT, BEFORE)
  return absent
end

-- Forgets the epochs that no judgement needs any more; they stay forgotten.
m.known_from = math.max(m.known_from, current - silent - 1)
redis.call('ZREMRANGEBYSCORE', TAILS, '-inf', '(' .. text(m.known_from))
if not complete() then
  save()
  return { INCOMPLETE, 0, 0 }
end
m.judged = current
local last, absent = judged_up_to(), 0
if last >= m.head then
  absent = mark_silent(last)
end
if absent > 0 then
  m.live = m.live - absent
  m.v_gone = m.v_gone + 1
  m.v_all = m.v_all + 1
end
end_rebuilding()
save()
return { ABSENT, absent, 0 }
