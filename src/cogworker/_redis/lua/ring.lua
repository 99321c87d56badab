-- Wakes workers that listen at their bells.
-- KEYS   the bells
-- Reply  their number
-- @include ring
for _, bell in ipairs(KEYS) do ring(bell) end
return #KEYS
