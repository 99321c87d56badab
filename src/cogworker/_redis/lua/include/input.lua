-- Reads ARGV from left to right, so that caller and script agree by order alone.
local position = 0

local function text()
  position = position + 1
  return ARGV[position]
end

local function number()
  return tonumber(text())
end

-- A key is passed as its index in KEYS, so that every key is declared.
local function key()
  return KEYS[tonumber(text())]
end
