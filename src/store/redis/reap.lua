-- Line::reap: marks the silent absent, by operations on whole bitmaps.
--
-- KEYS: the queue's, two for scratch, then the bits and the gateways of each epoch from the last
-- one back. ARGV: clock, the current epoch, how many epochs back KEYS reach.
-- Answer: false for an unknown queue, else { kind, a, b }: ABSENT with how many; ALREADY;
-- INCOMPLETE; or ASK_AGAIN, because the store's clock says epoch a and judging takes b epochs.

local ABSENT, ALREADY, INCOMPLETE, ASK_AGAIN = 0, 1, 2, 3
local SILENT, BEFORE = KEYS[9], KEYS[10]

if not open() then
  return false
end
local current = math.floor(now / EPOCH_MS)
local reach = math.max(m.silent, 2)
if m.judged >= current then
  return { ALREADY, 0, 0 }
end
if ARGV[2] ~= text(current) or ARGV[3] ~= text(reach) then
  return { ASK_AGAIN, current, reach }
end

local function bits(back)
  return KEYS[9 + 2 * back]
end
local function gateways(back)
  return KEYS[10 + 2 * back]
end

-- Each epoch was reported, and no gateway of the last but one is missing from the last.
local function complete()
  if current - reach < m.known_from then
    return false
  end
  for back = 1, reach do
    if redis.call('EXISTS', gateways(back)) == 0 then
      return false
    end
  end
  for _, gateway in ipairs(redis.call('HKEYS', gateways(2))) do
    if redis.call('HEXISTS', gateways(1), gateway) == 0 then
      return false
    end
  end
  return true
end

-- The last number that had entered when the judged epochs began.
local function judged_up_to()
  local mark = redis.call(
    'ZRANGEBYSCORE', TAILS, text(current - m.silent), '+inf', 'LIMIT', 0, 1)[1]
  local tail = mark and tonumber(string.match(mark, ':(%d+)$')) or m.tail
  return math.min(tail, m.tail)
end

-- Marks the silent among the numbers from head to `last`; answers how many were not gone before.
local function mark_silent(last)
  local first = m.head - m.head % 8
  local length = math.floor((last - first) / 8) + 1
  redis.call('DEL', SILENT)
  for back = 1, m.silent do
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
m.known_from = math.max(m.known_from, current - m.silent - 1)
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
save()
return { ABSENT, absent, 0 }
