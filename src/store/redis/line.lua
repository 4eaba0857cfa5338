-- What the scripts of a queue share: keys, clock, numbers, and the rules two of them need. Put in
-- front of each script; the reference for every rule is src/queue/line.rs.
--
-- KEYS[1..9]: the queue's own keys, always in the same order; keys.rs says what each holds.
-- ARGV[1]: empty, or a test clock in milliseconds, honoured only by a queue made for tests.

local META, GONE, USERS, ACTIVE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local LATE, MARKS, TAILS, REVOKED, BURIED = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]

local EPOCH_MS = 30000       -- settings::EPOCH_MS
local MICRO = 1000000        -- settings::MICRO
local REVOCATION_DELAY = 500 -- line::REVOCATION_DELAY
local REVOCATION_KEPT = 10000 -- line::REVOCATION_KEPT
local LATE_SHARE = 5         -- line::LATE_SHARE
local MAX_ADMITTED = 1000    -- line::MAX_ADMITTED
local MAX_SEQ = 9007199254740991
local GAP = 200000           -- line::GAP

-- Where a token stands, as reply.rs reads it.
local IS_WAITING, IS_LATE, IS_ACTIVE = 1, 2, 3
local IS_UNKNOWN, IS_EXPIRED, IS_MISSED, IS_CLOSED, IS_LOST = 4, 5, 6, 7, 11

local NUMBERS = {
  'inc', 'test_clock', 'last_now', 'base', 'head', 'tail', 'live', 'admitted',
  'v_all', 'v_gone', 'v_late', 'v_settings', 'v_revoked',
  'micro', 'micro_at', 'forgotten', 'judged', 'entered_epoch', 'known_from', 'expires_at',
  'capacity', 'rate', 'active_ttl', 'active_max', 'sliding', 'claim_ttl', 'silent', 'late_grace',
  'max_waiting', 'opens_at', 'closes_at',
  'fences', 'admit_after', 'issued_floor', 'created', 'previous', 'rebuilding',
}

-- Those that a queue may be without.
local OPTIONAL = {
  test_clock = true, entered_epoch = true, expires_at = true, opens_at = true, closes_at = true,
  rebuilding = true,
}

local m, before, mode, now = {}, {}, nil, nil
-- Ranges of lost numbers, ascending: { first, last, when it was noticed that the head passed it }.
local lost, lost_changed = {}, false

-- A whole number as text, exact up to 2^53. Lua and Redis would both write an exponent otherwise.
local function text(number)
  return string.format('%.0f', number)
end

-- Which server this is, and since which start. Only the server itself can say: connections come
-- back silently at another one.
local function server_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
end

local function read_lost(raw)
  for first, last, passed in string.gmatch(raw, '(%d+)-(%d+)@(%d+)') do
    lost[#lost + 1] = { tonumber(first), tonumber(last), tonumber(passed) }
  end
end

-- Reads the queue and the clock. True, or what the script is to answer: false if there is no such
-- queue, the status FENCE if it was not fenced on this server, unless the script does that.
local function open(on_any_server)
  local raw = redis.call('HMGET', META, 'mode', unpack(NUMBERS))
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  if not raw[2] then
    return false
  end
  mode = raw[1]
  for at, name in ipairs(NUMBERS) do
    m[name] = tonumber(raw[at + 1])
    before[name] = m[name]
    if not m[name] and not OPTIONAL[name] then
      error('the queue has no ' .. name)
    end
  end
  if m.test_clock and ARGV[1] ~= '' then
    now = tonumber(ARGV[1])
  end
  now = math.max(now, m.last_now) -- time never runs backwards inside a queue
  local known = redis.call('HMGET', META, 'run', 'lost')
  if not on_any_server and known[1] ~= server_run() then
    return redis.status_reply('FENCE')
  end
  if known[2] then
    read_lost(known[2])
  end
  return true
end

-- Writes what changed.
local function save()
  local changed = {}
  for _, name in ipairs(NUMBERS) do
    if m[name] and m[name] ~= before[name] then
      changed[#changed + 1] = name
      changed[#changed + 1] = text(m[name])
    end
  end
  if lost_changed then
    local ranges = {}
    for at, range in ipairs(lost) do
      ranges[at] = text(range[1]) .. '-' .. text(range[2]) .. '@' .. text(range[3])
    end
    changed[#changed + 1] = 'lost'
    changed[#changed + 1] = table.concat(ranges, ' ')
  end
  if before.rebuilding and not m.rebuilding then
    redis.call('HDEL', META, 'rebuilding')
  end
  if #changed > 0 then
    redis.call('HSET', META, 'last_now', text(now), unpack(changed))
  end
end

-- The answer to a command that may have changed the line.
local function versioned(...)
  return { m.v_all, m.inc, now, ... }
end

local function phase()
  if mode == 'closed' or (m.closes_at and now >= m.closes_at) then
    return 'closed'
  end
  if m.opens_at and now < m.opens_at then
    return 'not_open'
  end
  return 'open'
end

-- The token bucket; see bucket.rs. A rate below 0 is no limit. A product beyond 2^53 is inexact
-- but then far beyond the depth.

local function depth(rate)
  return math.max(rate * 1000, MICRO)
end

local function refilled()
  if m.rate < 0 then
    return 0
  end
  return math.min(m.micro + math.max(0, now - m.micro_at) * m.rate, depth(m.rate))
end

local function available()
  if m.rate < 0 then
    return math.huge
  end
  return math.floor(refilled() / MICRO)
end

local function take(users)
  m.micro = math.max(0, refilled() - users * MICRO)
  m.micro_at = math.max(m.micro_at, now)
end

-- The active set.

-- When the lease of a number ends, or nil if it has none now.
local function lease(seq)
  local ends = tonumber(redis.call('ZSCORE', ACTIVE, text(seq)))
  return ends and ends > now and ends or nil
end

local function active_count()
  redis.call('ZREMRANGEBYSCORE', ACTIVE, '-inf', text(now))
  return redis.call('ZCARD', ACTIVE)
end

-- When the head passed a number; see marks.rs. Score = head, member = second: both ascend.

local function in_grace(second)
  return m.late_grace > 0 and now <= second * 1000 + 999 + m.late_grace
end

local function record_head()
  local old
  repeat
    local marks = redis.call('ZRANGE', MARKS, 0, 63, 'WITHSCORES')
    old = 0
    while old * 2 < #marks and not in_grace(tonumber(marks[old * 2 + 1])) do
      old = old + 1
      m.forgotten = tonumber(marks[old * 2])
    end
    if old > 0 then
      redis.call('ZREMRANGEBYRANK', MARKS, 0, old - 1)
    end
  until old < 64
  redis.call('ZADD', MARKS, text(m.head), text(math.floor(now / 1000)))
end

local function passed_in_grace(seq)
  if seq < m.forgotten then
    return false
  end
  local mark = redis.call('ZRANGEBYSCORE', MARKS, '(' .. text(seq), '+inf', 'LIMIT', 0, 1)
  return mark[1] ~= nil and in_grace(tonumber(mark[1]))
end

-- Lost numbers; see recovery.rs.

local function is_lost(seq)
  for _, range in ipairs(lost) do
    if seq >= range[1] and seq <= range[2] then
      return true
    end
  end
  return false
end

-- How many lost numbers there are from `head` on.
local function lost_from(head)
  local count = 0
  for _, range in ipairs(lost) do
    count = count + math.max(0, range[2] + 1 - math.max(range[1], head))
  end
  return count
end

local function may_be_lost(seq)
  return seq > m.tail or (is_lost(seq) and not redis.call('ZSCORE', BURIED, text(seq)))
end

local function bury(seq)
  if is_lost(seq) then
    redis.call('ZADD', BURIED, text(seq), text(seq))
  end
end

local function lose(first, last)
  local range = lost[#lost]
  if range and range[2] + 1 >= first then
    range[2], range[3] = math.max(range[2], last), 0
  else
    lost[#lost + 1] = { first, last, 0 }
  end
  lost_changed = true
end

-- Marks the numbers from `first` to `last` as gone.
local function mark_gone(first, last)
  local at, stop = first - m.base, last - m.base
  while at <= stop and at % 8 ~= 0 do
    redis.call('SETBIT', GONE, text(at), 1)
    at = at + 1
  end
  local bytes = math.floor((stop + 1 - at) / 8)
  if bytes > 0 then
    redis.call('SETRANGE', GONE, text(at / 8), string.rep('\255', bytes))
    at = at + bytes * 8
  end
  while at <= stop do
    redis.call('SETBIT', GONE, text(at), 1)
    at = at + 1
  end
end

-- The tail jumps to `tail`; the numbers in between are gone and lost.
local function leave_a_gap(tail)
  if tail > m.tail then
    mark_gone(m.tail + 1, tail)
    lose(m.tail + 1, tail)
    m.tail = tail
    m.v_gone = m.v_gone + 1
  end
end

-- Takes a number out of the line and the late lane, wherever it is.
local function take_out(seq)
  if seq >= m.head then
    if redis.call('SETBIT', GONE, text(seq - m.base), 1) == 0 then
      m.live = m.live - 1
      m.v_gone = m.v_gone + 1
    end
  elseif redis.call('ZREM', LATE, text(seq)) == 1 then
    m.v_late = m.v_late + 1
  end
end

-- The user index. An entry that cannot be read counts as none.

local function parse(raw)
  local seq, entered, claimed, late = string.match(raw, '^(%d+) (%d+) (%d+) ([01])$')
  return seq and {
    seq = tonumber(seq), entered = tonumber(entered), claimed = tonumber(claimed),
    late = late == '1',
  }
end

local function entry_of(tag)
  local raw = redis.call('HGET', USERS, tag)
  return raw and parse(raw)
end

local function put(tag, entry)
  redis.call('HSET', USERS, tag, string.format(
    '%.0f %.0f %.0f %d', entry.seq, entry.entered, entry.claimed, entry.late and 1 or 0))
end

-- The first use and every later one; answers when the lease ends now.
local function claim(tag, entry, ends)
  local wanted = ends
  if entry.claimed == 0 then
    entry.claimed = now
    put(tag, entry)
    wanted = now + m.active_ttl
  elseif m.sliding == 1 then
    wanted = math.min(now + m.active_ttl, entry.claimed + m.active_max)
  end
  if wanted > ends then
    redis.call('ZADD', ACTIVE, text(wanted), text(entry.seq))
    return wanted
  end
  return ends
end

-- Where the holder of an index entry stands: { kind, seq, entered, end of lease, claimed }.
local function standing_of(tag, entry, pass)
  local seq, entered = entry.seq, entry.entered
  local ends = lease(seq)
  if ends then
    if pass then
      ends = claim(tag, entry, ends)
    end
    return { IS_ACTIVE, seq, entered, ends, entry.claimed > 0 and 1 or 0 }
  end
  if entry.claimed > 0 then
    return { IS_EXPIRED, seq, entered, 0, 0 }
  end
  if phase() == 'closed' then
    return { IS_CLOSED, seq, entered, 0, 0 }
  end
  if seq >= m.head then
    if redis.call('GETBIT', GONE, text(seq - m.base)) == 1 then
      redis.call('SETBIT', GONE, text(seq - m.base), 0)
      m.live = m.live + 1
      m.v_gone = m.v_gone + 1
    end
    return { IS_WAITING, seq, entered, 0, 0 }
  end
  if redis.call('ZSCORE', LATE, text(seq)) then
    return { IS_LATE, seq, entered, 0, 0 }
  end
  if entry.late or not passed_in_grace(seq) then
    return { IS_MISSED, seq, entered, 0, 0 }
  end
  redis.call('ZADD', LATE, text(seq), text(seq))
  entry.late = true
  put(tag, entry)
  m.v_late = m.v_late + 1
  return { IS_LATE, seq, entered, 0, 0 }
end
