-- Wireshark/tshark dissector for Dask over TCP: all generations of the framing, ops in the Info column.
--
-- Usage: tshark -X lua_script:dask.lua -r capture.pcap -Y dask
--        or copy this file to Wireshark's personal plugin folder (Help > About > Folders).
-- Fields: dask.generation dask.frames dask.length dask.op dask.ops dask.kind dask.key dask.status
-- Port 8786 is the scheduler's default. Workers choose random ports, so every TCP stream is also tested by a heuristic.
-- The framing is described in lab/daskwire/decoder/dask/framing/headers.py; keep the two consistent.

local dask = Proto("dask", "Dask Distributed")

local f = {
  generation = ProtoField.string("dask.generation", "Generation"),
  frames = ProtoField.uint64("dask.frames", "Frames"),
  length = ProtoField.uint64("dask.length", "Message bytes"),
  kind = ProtoField.string("dask.kind", "Kind"),
  op = ProtoField.string("dask.op", "Op"),
  ops = ProtoField.uint32("dask.ops", "Number of ops"),
  key = ProtoField.string("dask.key", "Key"),
  status = ProtoField.string("dask.status", "Status"),
}
dask.fields = { f.generation, f.frames, f.length, f.kind, f.op, f.ops, f.key, f.status }

local MAX_FRAMES, MAX_BYTES, MAX_DEPTH = 100000, 2 ^ 31, 64
local HEADER = 24 -- the smallest header: three words

-- Read a 64-bit little-endian word; return nil if it is too large to be a size.
local function word(buffer, at)
  if buffer(at + 4, 4):le_uint() ~= 0 then return nil end
  return buffer(at, 4):le_uint()
end

-- Decode the parts of MessagePack that messages use. Return the value and the position after it; raises errors.
local unpack

local function text(buffer, at, size)
  return buffer:raw(at, size), at + size
end

local function items(buffer, at, count, depth)
  local list = {}
  for i = 1, count do list[i], at = unpack(buffer, at, depth + 1) end
  return list, at
end

local function map(buffer, at, count, depth)
  local result = {}
  for _ = 1, count do
    local key, value
    key, at = unpack(buffer, at, depth + 1)
    value, at = unpack(buffer, at, depth + 1)
    if type(key) == "string" then result[key] = value end
  end
  return { map = result }, at
end

local UNSIGNED, SIGNED = { [0xcc] = 1, [0xcd] = 2, [0xce] = 4 }, { [0xd0] = 1, [0xd1] = 2, [0xd2] = 4 }
local SKIP = { [0xca] = 4, [0xcb] = 8, [0xcf] = 8, [0xd3] = 8, [0xd4] = 2, [0xd5] = 3, [0xd6] = 5, [0xd7] = 9, [0xd8] = 17 }
local SIZED = { [0xc4] = 1, [0xc5] = 2, [0xc6] = 4, [0xd9] = 1, [0xda] = 2, [0xdb] = 4 }

unpack = function(buffer, at, depth)
  if depth > MAX_DEPTH then error("too deep") end
  local byte = buffer(at, 1):uint()
  at = at + 1
  if byte < 0x80 then return byte, at end
  if byte >= 0xe0 then return byte - 0x100, at end
  if byte < 0x90 then return map(buffer, at, byte - 0x80, depth) end
  if byte < 0xa0 then return items(buffer, at, byte - 0x90, depth) end
  if byte < 0xc0 then return text(buffer, at, byte - 0xa0) end
  if byte == 0xc0 then return nil, at end
  if byte == 0xc2 or byte == 0xc3 then return byte == 0xc3, at end
  if UNSIGNED[byte] then return buffer(at, UNSIGNED[byte]):uint(), at + UNSIGNED[byte] end
  if SIGNED[byte] then return buffer(at, SIGNED[byte]):int(), at + SIGNED[byte] end
  if SKIP[byte] then return 0, at + SKIP[byte] + (buffer(at, SKIP[byte]):len() - SKIP[byte]) end
  if SIZED[byte] then
    local width = SIZED[byte]
    return text(buffer, at + width, buffer(at, width):uint())
  end
  if byte == 0xdc then return items(buffer, at + 2, buffer(at, 2):uint(), depth) end
  if byte == 0xdd then return items(buffer, at + 4, buffer(at, 4):uint(), depth) end
  if byte == 0xde then return map(buffer, at + 2, buffer(at, 2):uint(), depth) end
  if byte == 0xdf then return map(buffer, at + 4, buffer(at, 4):uint(), depth) end
  error("not MessagePack of Dask")
end

-- Read a message header at buffer(at): return a table, "more" if bytes are missing, or nil if it is not a header.
local function lengths(buffer, at, count)
  if buffer:reported_len() < at + 8 * count then return "more" end
  local list, total = {}, 0
  for i = 1, count do
    local length = word(buffer, at + 8 * (i - 1))
    if length == nil then return nil end
    list[i], total = length, total + length
  end
  if total > MAX_BYTES then return nil end
  return list, total
end

local function header_g23(buffer, at)
  local split, count = word(buffer, at), word(buffer, at + 8)
  if not split or not count or count < 1 or count > MAX_FRAMES or split < 8 + 8 * count then return nil end
  local list, total = lengths(buffer, at + 16, count)
  if type(list) ~= "table" then return list end
  local border = 8 + 8 * count
  if split ~= border + total then
    local i = 1
    while border < split and i <= count do border, i = border + list[i], i + 1 end
    if border ~= split then return nil end
  end
  return { generation = split == 8 + 8 * count + total and "G2/G3" or "G3", count = count,
    size = 16 + 8 * count + total, body = 16 + 8 * count, body_size = list[1] }
end

local function header_g1(buffer, at)
  local count = word(buffer, at)
  if not count or count < 2 or count > MAX_FRAMES then return nil end
  local list, total = lengths(buffer, at + 8, count)
  if type(list) ~= "table" then return list end
  if list[2] == 0 then return nil end
  return { generation = "G1", count = count, size = 8 + 8 * count + total,
    body = 8 + 8 * count + list[1], body_size = list[2], compressed = list[1] > 0 }
end

local function header(buffer, at)
  local result = header_g23(buffer, at)
  if result ~= nil then return result end
  return header_g1(buffer, at)
end

-- Describe a decoded message: kind, list of ops, list of task keys, status.
local function describe(value)
  if type(value) == "string" then return "text", { value } end
  if type(value) ~= "table" then return "reply", {} end
  if value.map then
    local map_ = value.map
    if map_.op then return "request", { map_.op }, { map_.key }, nil end
    if map_["pickle-protocol"] then return "handshake", { "handshake" } end
    return "reply", { "reply" }, {}, map_.status
  end
  local ops, keys = {}, {}
  for _, item in ipairs(value) do
    if type(item) == "table" and item.map and type(item.map.op) == "string" then
      ops[#ops + 1] = item.map.op
      keys[#keys + 1] = item.map.key
    end
  end
  return #ops > 0 and "batch" or "reply", ops, keys
end

-- Format ops as "task-finished x3, add-keys".
local function count_ops(ops)
  local order, number = {}, {}
  for _, op in ipairs(ops) do
    if not number[op] then order[#order + 1] = op end
    number[op] = (number[op] or 0) + 1
  end
  local parts = {}
  for i, op in ipairs(order) do parts[i] = number[op] > 1 and (op .. " x" .. number[op]) or op end
  return table.concat(parts, ", ")
end

-- Format a task key as Python does: name or ('name', 0, 1).
local key_text
key_text = function(key)
  if type(key) ~= "table" then return tostring(key) end
  local parts = {}
  for i, part in ipairs(key) do parts[i] = type(part) == "string" and ("'" .. part .. "'") or key_text(part) end
  return "(" .. table.concat(parts, ", ") .. (#parts == 1 and ",)" or ")")
end

local function add_message(buffer, at, head, tree)
  local branch = tree:add(dask, buffer(at, head.size))
  branch:add(f.generation, head.generation)
  branch:add(f.frames, buffer(at + (head.generation == "G1" and 0 or 8), 8), UInt64(head.count))
  branch:add(f.length, UInt64(head.size))
  local ok, value = pcall(unpack, buffer, at + head.body, 0)
  if not ok or head.compressed then
    branch:add(f.kind, "undecoded")
    return "undecoded"
  end
  local kind, ops, keys, status = describe(value)
  branch:add(f.kind, kind)
  if kind == "batch" or kind == "request" then
    for _, op in ipairs(ops) do branch:add(f.op, op) end
    branch:add(f.ops, #ops)
  end
  for _, key in ipairs(keys or {}) do branch:add(f.key, key_text(key)) end
  if type(status) == "string" then branch:add(f.status, status) end
  local summary = count_ops(ops)
  branch:append_text(": " .. summary)
  return summary
end

-- Called by Wireshark with stream bytes from the start of a message; requests more bytes for incomplete messages.
function dask.dissector(buffer, pinfo, tree)
  local at, total, summaries = 0, buffer:reported_len(), {}
  while at < total do
    local need
    if total - at < HEADER then
      need = DESEGMENT_ONE_MORE_SEGMENT
    else
      local head = header(buffer(at):tvb(), 0)
      if head == nil then return at end
      if head == "more" then
        need = DESEGMENT_ONE_MORE_SEGMENT
      elseif at + head.size > total then
        need = at + head.size - total
      else
        if buffer:len() < at + head.size then return at end -- truncated by the snaplen
        summaries[#summaries + 1] = add_message(buffer, at, head, tree)
        at = at + head.size
      end
    end
    if need then
      pinfo.desegment_offset, pinfo.desegment_len = at, need
      break
    end
  end
  if #summaries > 0 then
    pinfo.cols.protocol = "Dask"
    pinfo.cols.info = table.concat(summaries, " | ")
  end
  return total
end

-- A stream is Dask if it begins with a message whose header and body agree to the last byte.
local function recognise(buffer, pinfo, tree)
  if buffer:len() < HEADER then return false end
  local head = header(buffer, 0)
  if type(head) ~= "table" or head.compressed or buffer:len() < head.body + head.body_size then return false end
  local ok, value, after = pcall(unpack, buffer, head.body, 0)
  if not ok or after ~= head.body + head.body_size or (type(value) ~= "table" and value ~= "OK") then return false end
  dask.dissector(buffer, pinfo, tree)
  pinfo.conversation = dask
  return true
end

dask:register_heuristic("tcp", recognise)
DissectorTable.get("tcp.port"):add(8786, dask)
