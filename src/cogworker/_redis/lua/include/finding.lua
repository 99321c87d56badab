-- @include input
-- What a look through entries finds: those that have all texts, <n> of them in ARGV. It has found
-- enough after `limit` of them, after a thousand entries, and after a megabyte.
local MOST, MOST_BYTES = 1000, 1048576
local found, looked, bytes = {}, 0, 0

local function read_texts()
  local texts = {}
  for i = 1, number() do texts[i] = text() end
  return texts
end

-- How many to read at once: entries may be large, but the way into a long list is, too.
local function step()
  return bytes < 1000 * looked and 200 or 50
end

local function has_all(entry, texts)
  for _, each in ipairs(texts) do
    if not string.find(entry, each, 1, true) then return false end
  end
  return true
end

-- Looks at one entry; answers whether that is enough.
local function look_at(entry, where, texts, limit)
  looked, bytes = looked + 1, bytes + #entry
  if has_all(entry, texts) then found[#found + 1], found[#found + 2] = entry, where end
  return #found / 2 >= limit or looked >= MOST or bytes >= MOST_BYTES
end
