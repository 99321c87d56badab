-- Says of what type keys are.
-- KEYS   the keys
-- Reply  their types, 'none' for one that is not there
local types = {}
for i, name in ipairs(KEYS) do types[i] = redis.call('TYPE', name).ok end
return types
