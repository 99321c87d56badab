-- @include clock
-- A worker is dead when its presence has expired and its last beat is older than `threshold`
-- seconds. Checked in the script that acts on it, so a late beat can't slip in between.
local function is_dead(workers, presence, worker, threshold)
  if redis.call('EXISTS', presence) == 1 then return false end
  local beat = redis.call('ZSCORE', workers, worker)
  return not beat or server_time() - beat > threshold
end
