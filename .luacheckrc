-- The scripts run in Redis, whose Lua is 5.1.
std = 'lua51'
read_globals = {'redis', 'struct', 'KEYS', 'ARGV', table = {fields = {'unpack'}}} -- table.unpack: after Lua 5.1
max_line_length = false
