-- Line::compact: frees the bitmap behind the head, and some index entries that are over.
--
-- KEYS: the queue's. ARGV: clock, how many numbers behind the head to keep.
-- Answer: false for an unknown queue, FENCE on a new server, else 1.

local SWEEP = 1000 -- index entries looked at in a call, about

local opened = open()
if opened ~= true then
  return opened
end
local base = math.floor(math.max(0, m.head - tonumber(ARGV[2])) / 64) * 64
if base > m.base then
  local rest = redis.call('GETRANGE', GONE, text((base - m.base) / 8), -1)
  if #rest > 0 then
    redis.call('SET', GONE, rest, 'KEEPTTL')
  else
    redis.call('DEL', GONE)
  end
  m.base = base
end

-- Forgets lost ranges whose last holder can have no place any more.
local open_ranges = {}
for _, range in ipairs(lost) do
  local passed = range[3]
  if range[2] < m.head and passed == 0 then
    passed, range[3], lost_changed = now, now, true
  end
  if range[2] >= m.head or now <= passed + m.claim_ttl + m.late_grace then
    open_ranges[#open_ranges + 1] = range
  end
end
if #open_ranges < #lost then
  local from = 0
  for _, range in ipairs(open_ranges) do
    redis.call('ZREMRANGEBYSCORE', BURIED, text(from), '(' .. text(range[1]))
    from = range[2] + 1
  end
  redis.call('ZREMRANGEBYSCORE', BURIED, text(from), '+inf')
  lost, lost_changed = open_ranges, true
end

-- Whether an index entry can still mean anything.
local function is_alive(entry)
  return entry and (entry.seq >= m.head
    or is_lost(entry.seq)
    or redis.call('ZSCORE', LATE, text(entry.seq))
    or lease(entry.seq)
    or (entry.claimed == 0 and not entry.late and passed_in_grace(entry.seq)))
end

local meant = m.live + redis.call('ZCARD', LATE) + active_count()
if redis.call('HLEN', USERS) > 2 * meant + 1024 then
  local cursor = redis.call('HGET', META, 'sweep') or '0'
  local found = redis.call('HSCAN', USERS, cursor, 'COUNT', SWEEP)
  for at = 1, #found[2], 2 do
    if not is_alive(parse(found[2][at + 1])) then
      redis.call('HDEL', USERS, found[2][at])
    end
  end
  redis.call('HSET', META, 'sweep', found[1])
end
save()
return 1
