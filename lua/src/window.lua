--- All verbs. Go sends each of the blocks included below as a script of its own, after struct.
-- include contract

-- include struct

if ARGV[1] == 'joint' then
  -- include window-joint
elseif ARGV[1] == 'refund' or ARGV[1] == 'reset' then
  -- include window-refund
elseif ARGV[1] == 'undo' then
  -- include window-undo
elseif ARGV[1] == 'counteach' then
  -- include window-rows
elseif ARGV[1] == 'inspect' then
  -- include window-inspect
else
  -- include window-allow
end
