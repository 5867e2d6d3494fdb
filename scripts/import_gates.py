#!/usr/bin/env python3
"""Makes a gate file (docs/formats.md) of a TRIM-KV or DBTrimKV checkpoint.

    import_gates.py CHECKPOINT_DIR -o GATES.gguf [--type f16] [--name NAME]

The folder holds config.json and the gates: trimkv_weights.pth (a torch file) or *.safetensors.
Needs Python 3.8 alone. A torch file is read as data: its pickle is never run, only the few
instructions that a dictionary of tensors is made of are followed, and all others are refused.
"""

import argparse
import array
import collections
import json
import math
import os
import pathlib
import pickletools
import re
import struct
import sys
import tempfile
import zipfile

GATE_TENSOR = re.compile(r"(?:^|.*\.)layers\.(\d+)\.self_attn\.retention_gate\.(.+)$")
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu"}
ARCHITECTURES = ("llama", "qwen2", "qwen3")
MAX_HIDDEN = 8
MAX_HEADER_BYTES = 64 << 20
LITTLE = sys.byteorder == "little"


class ImportFailure(Exception):
    """What is wrong with the input: one sentence that names the file."""


def fail(where, expected, found):
    """`found` is text, a number or an error; of anything else only the type is named."""
    if not isinstance(found, (str, int, float, Exception)):
        found = f"a {type(found).__name__}"
    raise ImportFailure(f"{where}: expected {expected}, found {str(found)[:200]}")


# ---- Numbers


def floats_from(values, typecode, data):
    values.frombytes(data)
    if not LITTLE:
        values.byteswap()
    return values if typecode == "f" else array.array("f", values)


def read_f32(data):
    return floats_from(array.array("f"), "f", data)


def read_bf16(data):
    wide = bytearray(2 * len(data))
    wide[2::4] = data[0::2]
    wide[3::4] = data[1::2]
    return read_f32(bytes(wide))


def read_f16(data):
    return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))


READERS = {"f32": (4, read_f32), "bf16": (2, read_bf16), "f16": (2, read_f16)}


class Tensor:
    """Shape, and the floats of one tensor, row by row, read when they are asked for."""

    def __init__(self, shape, read):
        self.shape = shape
        self.read = read

    def floats(self):
        return self.read()


# ---- safetensors


def read_safetensors(path):
    """The gate tensors of a file: a JSON header, then the bytes."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            fail(path, "a safetensors file", f"{size} bytes with a header of {length}")
        try:
            header = json.loads(file.read(length).decode("utf-8"))
            entries = {k: v for k, v in header.items() if GATE_TENSOR.match(k)}
        except (ValueError, AttributeError, RecursionError) as error:
            fail(path, "a JSON header", error)
    tensors = {}
    for name, entry in entries.items():
        try:
            kind = entry["dtype"].lower()
            shape = [int(n) for n in entry["shape"]]
            begin, end = (int(n) for n in entry["data_offsets"])
        except (KeyError, TypeError, ValueError, AttributeError):
            fail(f"{path}: tensor '{name}'", "dtype, shape and data_offsets", str(entry))
        if kind not in READERS:
            fail(f"{path}: tensor '{name}'", "type F32, F16 or BF16", entry["dtype"])
        n_bytes = math.prod(shape) * READERS[kind][0]
        if min(shape, default=1) < 0 or not 0 <= begin <= end <= size - 8 - length:
            fail(f"{path}: tensor '{name}'", f"bytes inside the file of {size}", f"{begin}..{end}")
        if end - begin != n_bytes:
            fail(f"{path}: tensor '{name}'", f"{n_bytes} bytes for shape {shape}", end - begin)
        tensors[name] = Tensor(shape, slice_reader(path, 8 + length + begin, n_bytes, kind))
    return tensors


def slice_reader(path, offset, n_bytes, kind):
    def read():
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(n_bytes)
        if len(data) != n_bytes:
            fail(path, f"{n_bytes} bytes at {offset}", len(data))
        return READERS[kind][1](data)

    return read


# ---- torch files

Storage = collections.namedtuple("Storage", "kind key n_element")
STORAGE_KINDS = {"FloatStorage": "f32", "HalfStorage": "f16", "BFloat16Storage": "bf16"}
MARK = object()


class Unpickled:
    """Follows the instructions of a pickled dictionary of tensors; runs nothing.

    Every global is one of a fixed list and stands for a function of this class; any other one, and
    any instruction that such a file does not need, ends the reading.
    """

    def __init__(self, where, data):
        self.where = where
        self.stack = []
        self.memo = {}
        self.globals = {
            "collections OrderedDict": self.make_dict,
            "torch._utils _rebuild_tensor_v2": self.make_tensor,
            "torch._utils _rebuild_parameter": self.make_parameter,
        }
        for name, kind in STORAGE_KINDS.items():
            self.globals[f"torch {name}"] = kind
        self.value = self.follow(data)

    def fail(self, expected, found):
        fail(self.where, expected, found)

    def follow(self, data):
        try:
            for op, argument, _ in pickletools.genops(data):
                if op.name == "STOP":
                    return self.stack.pop()
                self.step(op.name, argument)
        except (ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
            self.fail("the pickle of a state dict", f"a broken one ({error})")
        return self.fail("the pickle of a state dict", "one without an end")

    def step(self, op, argument):
        if op in ("PROTO", "FRAME"):
            return
        if op in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif op == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif op == "POP":
            self.stack.pop()
        elif op in ("SETITEM", "SETITEMS", "APPEND", "APPENDS"):
            self.fill(op)
        elif op == "BUILD":  # _metadata of a state dict
            self.stack.pop()
        else:
            self.stack.append(self.push(op, argument))

    def push(self, op, argument):
        if op in ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE",
                  "BINFLOAT"):
            return argument
        constants = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": MARK}
        if op in constants:
            return constants[op]
        if op in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            return {"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[op]
        if op in ("BINGET", "LONG_BINGET"):
            return self.memo[argument]
        if op == "TUPLE":
            return tuple(self.pop_to_mark())
        if op in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(op[-1])
            items = tuple(self.stack[-n:])
            del self.stack[-n:]
            return items
        if op == "GLOBAL":
            return self.find_global(argument)
        if op == "STACK_GLOBAL":
            name = self.stack.pop()
            return self.find_global(f"{self.stack.pop()} {name}")
        if op == "BINPERSID":
            return self.find_storage(self.stack.pop())
        if op == "REDUCE":
            arguments = self.stack.pop()
            return self.call(self.stack.pop(), arguments)
        return self.fail("the pickle of a state dict", f"the instruction {op}, which is not followed")

    def pop_to_mark(self):
        items = []
        while (item := self.stack.pop()) is not MARK:
            items.append(item)
        return items[::-1]

    def fill(self, op):
        items = self.pop_to_mark() if op.endswith("S") else self.stack[-2 if op == "SETITEM" else -1:]
        if not op.endswith("S"):
            del self.stack[-len(items):]
        target = self.stack[-1]
        if op.startswith("APPEND"):
            list.extend(target, items)
        elif all(isinstance(key, str) for key in items[0::2]):
            dict.update(target, zip(items[0::2], items[1::2]))
        else:
            self.fail("names as keys", "another key")

    def find_global(self, name):
        if name not in self.globals:
            self.fail("tensors alone", f"a call of '{name.replace(' ', '.')}': refused, not run")
        return self.globals[name]

    def find_storage(self, identity):
        if not isinstance(identity, tuple) or len(identity) != 5 or identity[0] != "storage":
            self.fail("the storage of a tensor", identity)
        _, kind, key, _, n_element = identity
        if kind not in STORAGE_KINDS.values():
            self.fail("a float, half or bfloat16 storage", kind)
        if not isinstance(key, str) or not isinstance(n_element, int):
            self.fail("a storage with a name and a size", key)
        return Storage(kind, key, n_element)

    def call(self, function, arguments):
        if not callable(function) or not isinstance(arguments, tuple):
            self.fail("the making of a tensor", f"a call of a {type(function).__name__}")
        return function(*arguments)

    @staticmethod
    def make_dict():
        return {}

    def make_tensor(self, storage, offset, shape, stride, *_):
        if not isinstance(storage, Storage):
            self.fail("the storage of a tensor", storage)
        shape = [int(n) for n in shape]
        step = 1
        for size, found in zip(reversed(shape), reversed(stride)):
            if size != 1 and found != step:
                self.fail("contiguous tensors", f"shape {shape} with other strides")
            step *= size
        if min(shape, default=1) < 0 or not 0 <= offset <= storage.n_element - step:
            self.fail("a tensor inside its storage", f"shape {shape} at {offset}")
        return (storage, int(offset), shape)

    @staticmethod
    def make_parameter(tensor, *_):
        return tensor


def read_torch(path):
    """The gate tensors of a file of torch.save: a zip of a pickle and one file per storage."""
    with open(path, "rb") as file:
        start = file.read(2)
    if start != b"PK":
        fail(path, "a torch file of version 1.6 or later (a zip)",
             "an older one: load and save it again with torch" if start == b"\x80\x02"
             else "something else")
    try:
        with zipfile.ZipFile(path) as file:
            infos = {info.filename: info for info in file.infolist()}
            pickles = [name for name in infos if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                fail(path, "one data.pkl", len(pickles))
            check_stored(path, infos[pickles[0]], MAX_HEADER_BYTES)
            folder = pickles[0][:-len("data.pkl")]
            if file_text(file, infos, folder + "byteorder", "little") != "little":
                fail(path, "byte order little", "another one")
            value = Unpickled(path, file.read(pickles[0])).value
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        fail(path, "a torch file (a zip)", error)
    if not isinstance(value, dict):
        fail(path, "a state dict", value)
    tensors = {}
    for name, entry in value.items():
        if not isinstance(name, str) or not GATE_TENSOR.match(name):
            continue
        if not isinstance(entry, tuple) or len(entry) != 3 or not isinstance(entry[0], Storage):
            fail(f"{path}: '{name}'", "a tensor", entry)
        tensors[name] = storage_tensor(path, infos, folder, name, entry)
    return tensors


def check_stored(path, info, max_bytes):
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > max_bytes:
        fail(f"{path}: {info.filename}", f"at most {max_bytes} bytes, not compressed",
             f"{info.file_size}, compression {info.compress_type}")


def file_text(file, infos, name, fallback):
    if name not in infos:
        return fallback
    check_stored(file.filename, infos[name], 64)
    return file.read(name).decode("ascii", "replace").strip()


def storage_tensor(path, infos, folder, name, entry):
    storage, offset, shape = entry
    width, reader = READERS[storage.kind]
    member = infos.get(f"{folder}data/{storage.key}")
    if member is None:
        fail(f"{path}: tensor '{name}'", f"its data in {folder}data/{storage.key}", "no such file")
    check_stored(path, member, path.stat().st_size)
    if member.file_size != storage.n_element * width:
        fail(f"{path}: tensor '{name}'", f"{storage.n_element * width} bytes in {member.filename}",
             member.file_size)

    def read():
        n_bytes = math.prod(shape) * width
        try:
            with zipfile.ZipFile(path) as file, file.open(member) as data:
                data.seek(offset * width)
                values = data.read(n_bytes)
        except (zipfile.BadZipFile, EOFError) as error:
            fail(f"{path}: tensor '{name}'", "its data", error)
        if len(values) != n_bytes:
            fail(f"{path}: tensor '{name}'", f"{n_bytes} bytes", len(values))
        return reader(values)

    return Tensor(shape, read)


# ---- The checkpoint


def read_config(folder):
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImportFailure(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        fail(path, "JSON", error)
    if not isinstance(config, dict):
        fail(path, "an object", config)
    return path, config


def count(path, config, key, fallback=None, low=1):
    value = config.get(key, fallback)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < 1 << 31:
        fail(f"{path}: '{key}'", f"an integer >= {low}", "nothing" if value is None else str(value))
    return value


def architecture(path, config):
    """Of the base model: 'qwen3' also for 'trimkv_qwen3' and TrimKVQwen3ForCausalLM."""
    names = config.get("architectures") or []
    candidates = [config.get("model_type")] + (names if isinstance(names, list) else [])
    for text in candidates:
        match = re.search(r"(llama|qwen2|qwen3)(forcausallm)?$", str(text).lower())
        if match:
            return match.group(1)
    return fail(f"{path}: 'model_type'", f"a model of {', '.join(ARCHITECTURES)}",
                ", ".join(str(text) for text in candidates if text) or "nothing")


def find_weights(folder):
    """The files with the gates: the authors' own name first."""
    torch_file = folder / "trimkv_weights.pth"
    if torch_file.is_file():
        return [torch_file]
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.pth"))
    if not files:
        fail(folder, "trimkv_weights.pth or *.safetensors", "neither")
    return files


def read_tensors(files):
    tensors = {}
    for path in files:
        reader = read_safetensors if path.suffix == ".safetensors" else read_torch
        for name, tensor in reader(path).items():
            layer, part = GATE_TENSOR.match(name).groups()
            if tensors.setdefault((int(layer), part), tensor) is not tensor:
                fail(f"{path}: tensor '{name}'", "each tensor once", "a second one of this layer")
    if not tensors:
        fail(", ".join(str(path) for path in files),
             "tensors model.layers.N.self_attn.retention_gate.*", "none")
    return tensors


class Gate:
    """The tensors of all layers, checked against each other and the configuration."""

    def __init__(self, where, tensors, n_layer, n_embd, n_kv_head):
        self.where = where
        self.tensors = tensors
        self.n_layer = n_layer
        self.n_kv_head = n_kv_head
        self.n_linear = self.count_linears()
        self.shared = self.find_shared()
        self.check_names()
        self.hidden = []
        n_in = n_embd
        for k in range(1, self.n_linear):
            n_out = (self.shape(0, f"linear{k}.weight") or [0])[0]
            self.check(f"linear{k}.weight", [n_out, n_in], f"[hidden size, {n_in}]")
            self.check(f"linear{k}.bias", [n_out])
            self.hidden.append(n_out)
            n_in = n_out
        self.check(self.output, [n_kv_head, n_in])
        self.check("bias", [n_kv_head])
        self.tied = self.is_tied()

    @property
    def output(self):
        return f"linear{self.n_linear}.weight"

    def name(self, layer, part):
        return f"layers.{layer}.self_attn.retention_gate.{part}"

    def shape(self, layer, part):
        return self.get(layer, part).shape

    def get(self, layer, part):
        if part in self.shared:
            layer = self.shared[part]
        if (layer, part) not in self.tensors:
            fail(f"{self.where}: tensor '{self.name(layer, part)}'",
                 f"one, as there are {self.n_layer} layers", "no such tensor: it is missing")
        return self.tensors[layer, part]

    def count_linears(self):
        numbers = [int(m.group(1)) for _, part in self.tensors
                   if (m := re.fullmatch(r"linear(\d{1,2})\.weight", part))]
        n = max(numbers, default=0)
        if not 2 <= n <= MAX_HIDDEN + 1:
            fail(self.where, f"retention_gate.linear1 and linear2, at most linear{MAX_HIDDEN + 1}",
                 f"linear{n}" if n else "no retention_gate.linearN.weight")
        return n

    def find_shared(self):
        """Output tensors that only one layer holds, as files that store shared ones once do."""
        shared = {}
        for part in (self.output, "bias"):
            layers = [layer for layer, found in self.tensors if found == part]
            if len(layers) == 1 and self.n_layer > 1:
                shared[part] = layers[0]
        return shared if len(shared) == 2 else {}

    def check_names(self):
        known = {self.output, "bias"}
        for k in range(1, self.n_linear):
            known |= {f"linear{k}.weight", f"linear{k}.bias"}
        for layer, part in sorted(self.tensors):
            if part not in known:
                fail(f"{self.where}: tensor '{self.name(layer, part)}'",
                     f"one of {', '.join(sorted(known))}", "an unknown one")
            if layer >= self.n_layer:
                fail(f"{self.where}: tensor '{self.name(layer, part)}'",
                     f"layers 0..{self.n_layer - 1} (num_hidden_layers)", f"layer {layer}")

    def check(self, part, shape, text=None):
        for layer in range(self.n_layer):
            found = self.shape(layer, part)
            if found != shape or min(shape) < 1:
                fail(f"{self.where}: tensor '{self.name(layer, part)}'",
                     f"shape {text if text and layer == 0 else shape}", str(found))

    def is_tied(self):
        if self.shared:
            return True
        first = [self.get(0, part).floats() for part in (self.output, "bias")]
        return self.n_layer > 1 and all(
            [self.get(layer, part).floats() for part in (self.output, "bias")] == first
            for layer in range(1, self.n_layer))

    def entries(self):
        """Names in the gate file, shapes and tensors, in the order of the file."""
        for layer in range(self.n_layer):
            for k in range(1, self.n_linear):
                for part in (f"linear{k}.weight", f"linear{k}.bias"):
                    yield f"blk.{layer}.gate.{part}", self.name(layer, part), self.get(layer, part)
            if layer == 0 or not self.tied:
                prefix = "" if self.tied else f"blk.{layer}."
                for part, to in ((self.output, "weight"), ("bias", "bias")):
                    yield f"{prefix}gate.output.{to}", self.name(layer, part), self.get(layer, part)


# ---- GGUF

ALIGNMENT = 32
U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10
GGML_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}


def pack_f32(values):
    if LITTLE:
        return values.tobytes()
    swapped = array.array("f", values)
    swapped.byteswap()
    return swapped.tobytes()


def pack_f16(values):
    return struct.pack(f"<{len(values)}e", *values)


def as_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def pack_q8_0(values):
    """Blocks of 32: an f16 scale, and integers that it multiplies."""
    pack = struct.Struct("<e32b").pack
    blocks = []
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        scale = as_f32(max(max(block), -min(block)) / 127)
        inverse = 1 / scale if scale else 0.0
        numbers = [int(v * inverse + (0.5 if v > 0 else -0.5)) for v in block]
        blocks.append(pack(scale, *numbers))
    return b"".join(blocks)


PACKERS = {"f32": pack_f32, "f16": pack_f16, "q8_0": pack_q8_0}


def n_bytes_of(kind, n):
    return {"f32": 4 * n, "f16": 2 * n, "q8_0": n // 32 * 34}[kind]


def gguf_string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def gguf_key(name, kind, value):
    out = gguf_string(name) + struct.pack("<I", kind)
    if kind == STRING:
        return out + gguf_string(value)
    if kind == ARRAY:
        return out + struct.pack(f"<IQ{len(value)}I", U32, len(value), *value)
    return out + struct.pack({U32: "<I", U64: "<Q", BOOL: "<?"}[kind], value)


def padding(n):
    return b"\0" * (-n % ALIGNMENT)


def pack_tensor(where, tensor, kind):
    values = tensor.floats()
    for i, value in enumerate(values):
        if not math.isfinite(value):
            fail(where, "finite weights", f"{value} at element {i}")
    try:
        return PACKERS[kind](values)
    except (OverflowError, struct.error):
        return fail(where, f"weights in the range of {kind}", max(values, key=abs))


def write_gguf(file, keys, tensors, where):
    """`tensors`: (name, source name, Tensor, kind) in order. Data is made one tensor at a time."""
    infos = b""
    offset = 0
    for name, _, tensor, kind in tensors:
        dims = tensor.shape[::-1]
        infos += gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims,
                                                 GGML_TYPES[kind], offset)
        n = n_bytes_of(kind, math.prod(dims))
        offset += n + len(padding(n))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    file.write(header + padding(len(header)))
    for _, source, tensor, kind in tensors:
        data = pack_tensor(f"{where}: tensor '{source}'", tensor, kind)
        file.write(data + padding(len(data)))


def write_atomically(path, write):
    """Either the whole file or what was there before."""
    if path.exists() and not path.is_file():
        fail(path, "a regular file or a new name", "a folder or a device")
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".tmp")
    except OSError as error:
        raise ImportFailure(f"{path}: cannot create a file beside it: {error.strerror}") from error
    try:
        with os.fdopen(number, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except OSError as error:
        raise ImportFailure(f"{path}: cannot write: {error.strerror}") from error
    finally:
        if os.path.exists(name):
            os.unlink(name)


def check_divisible(where, gate, n_embd, kind):
    for size in [n_embd] + gate.hidden:
        if kind == "q8_0" and size % 32 != 0:
            fail(where, "hidden_size and hidden layers divisible by 32 for type q8_0",
                 f"{size}; use --type f16")


def base_name(config, folder, name):
    text = name or str(config.get("_name_or_path") or folder.resolve().name)
    return text.rstrip("/").split("/")[-1]


def import_gates(folder, output, kind, name):
    if not folder.is_dir():
        fail(folder, "the folder of a checkpoint", "no folder of this name")
    config_path, config = read_config(folder)
    arch = architecture(config_path, config)
    n_layer = count(config_path, config, "num_hidden_layers")
    n_embd = count(config_path, config, "hidden_size")
    n_head = count(config_path, config, "num_attention_heads")
    n_kv_head = count(config_path, config, "num_key_value_heads", n_head)
    n_vocab = count(config_path, config, "vocab_size", 0, low=0)
    activation = config.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        fail(f"{config_path}: 'hidden_act'", ", ".join(ACTIVATIONS), activation)
    files = find_weights(folder)
    gate = Gate(", ".join(str(path) for path in files), read_tensors(files), n_layer, n_embd,
                n_kv_head)
    check_divisible(gate.where, gate, n_embd, kind)

    def key(part, value_kind, value):
        return gguf_key(f"kvbound-gates.{part}", value_kind, value)

    keys = [
        gguf_key("general.architecture", STRING, "kvbound-gates"),
        key("version", U32, 1),
        key("base.architecture", STRING, arch),
        key("base.name", STRING, base_name(config, folder, name)),
        key("base.block_count", U32, n_layer),
        key("base.embedding_length", U32, n_embd),
        key("base.head_count_kv", U32, n_kv_head),
        key("base.vocab_size", U32, n_vocab),
        key("base.norm_hash", U64, 0),
        key("activation", STRING, ACTIVATIONS[activation]),
        key("tied_output", BOOL, gate.tied),
        key("hidden_lengths", ARRAY, gate.hidden),
        key("training.method", STRING, "imported"),
    ]
    tensors = [(to, source, tensor, "f32" if to.endswith(".bias") else kind)
               for to, source, tensor in gate.entries()]
    write_atomically(output, lambda file: write_gguf(file, keys, tensors, gate.where))
    print(f"{output}: {n_layer} layers of {arch}, {n_embd} -> "
          f"{' -> '.join(str(n) for n in gate.hidden + [n_kv_head])}, {ACTIVATIONS[activation]}, "
          f"{kind}{', one output for all layers' if gate.tied else ''}")


def main():
    parser = argparse.ArgumentParser(
        description="Makes a gate file of a TRIM-KV or DBTrimKV checkpoint.")
    parser.add_argument("folder", metavar="CHECKPOINT_DIR", type=pathlib.Path,
                        help="holds config.json and trimkv_weights.pth or *.safetensors")
    parser.add_argument("-o", "--output", metavar="GATES.gguf", type=pathlib.Path, required=True)
    parser.add_argument("--type", choices=list(PACKERS), default="f16", help="of the matrices")
    parser.add_argument("--name", help="of the base model (default: as config.json has it)")
    arguments = parser.parse_args()
    try:
        import_gates(arguments.folder, arguments.output, arguments.type, arguments.name)
    except ImportFailure as error:
        print(f"import_gates.py: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"import_gates.py: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
