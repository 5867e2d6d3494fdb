#!/usr/bin/env python3
"""Tests of scripts/import_gates.py on checkpoints written here in the authors' formats."""

import collections
import io
import json
import math
import os
import pathlib
import pickle
import random
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "import_gates.py"
WIDTH = {"F32": 4, "F16": 2, "BF16": 2}

# ---- Checkpoints


def bf16_bytes(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def pack(kind, values):
    if kind == "BF16":
        return bf16_bytes(values)
    return struct.pack(f"<{len(values)}{'f' if kind == 'F32' else 'e'}", *values)


def rounded(kind, values):
    """What a file of this type holds of the values."""
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + struct.pack("<f", v)[2:])[0] for v in values]
    code = "f" if kind == "F32" else "e"
    return list(struct.unpack(f"<{len(values)}{code}", pack(kind, values)))


def make_state(n_layer=2, n_embd=32, hidden=(64,), n_kv_head=2, tied=False, seed=1):
    """Names and (shape, values) as in trimkv_weights.pth."""
    rng = random.Random(seed)

    def tensor(*shape):
        return list(shape), [rng.uniform(-0.5, 0.5) for _ in range(math.prod(shape))]

    state = collections.OrderedDict()
    shared = {}
    for layer in range(n_layer):
        prefix = f"model.layers.{layer}.self_attn.retention_gate."
        n_in = n_embd
        for k, n_out in enumerate(hidden, 1):
            state[f"{prefix}linear{k}.weight"] = tensor(n_out, n_in)
            state[f"{prefix}linear{k}.bias"] = tensor(n_out)
            n_in = n_out
        output = {f"linear{len(hidden) + 1}.weight": tensor(n_kv_head, n_in),
                  "bias": ([n_kv_head], [18.0 + rng.random() for _ in range(n_kv_head)])}
        shared = shared or output
        for part, value in (shared if tied else output).items():
            state[prefix + part] = value
    return state


CONFIG = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
          "_name_or_path": "Qwen/Qwen3-4B", "hidden_act": "silu", "num_hidden_layers": 2,
          "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
          "vocab_size": 300}


def write_safetensors(path, state, kind="F32"):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in state.items():
        piece = pack(kind, values)
        header[name] = {"dtype": kind, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class FakeTensor:
    def __init__(self, storage, offset, shape):
        self.arguments = (storage, offset, tuple(shape), strides(shape), False,
                          collections.OrderedDict())

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


FakeStorage = collections.namedtuple("FakeStorage", "kind key n_element")


def strides(shape):
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def fake_torch():
    """Modules with the names that a torch pickle mentions."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "HalfStorage", "BFloat16Storage", "IntStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*_):
        raise AssertionError("never called")

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    sys.modules["torch"], sys.modules["torch._utils"] = torch, utils
    return torch


class TorchPickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, FakeStorage):
            return ("storage", value.kind, value.key, "cpu", value.n_element)
        return None


def pickled(value):
    out = io.BytesIO()
    TorchPickler(out, protocol=2).dump(value)
    return out.getvalue()


def write_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr("archive/" + name, data)


def torch_members(state, kind="F32", storage_name=None, share=False):
    """The members of a torch file. With `share` all tensors lie in one storage."""
    torch = fake_torch()
    name = storage_name or {"F32": "FloatStorage", "F16": "HalfStorage",
                            "BF16": "BFloat16Storage"}[kind]
    everything = [v for _, values in state.values() for v in values]
    members, pickled_state, at = {}, collections.OrderedDict(), 0
    for i, (tensor_name, (shape, values)) in enumerate(state.items()):
        if share:
            storage, offset = FakeStorage(getattr(torch, name), "0", len(everything)), at
            members["data/0"] = pack(kind, everything)
        else:
            storage, offset = FakeStorage(getattr(torch, name), str(i), len(values)), 0
            members[f"data/{i}"] = pack(kind, values)
        at += len(values)
        pickled_state[tensor_name] = FakeTensor(storage, offset, shape)
    pickled_state._metadata = collections.OrderedDict({"": {"version": 1}})
    return {"data.pkl": pickled(pickled_state), "byteorder": "little", **members, "version": "3\n"}


# ---- Gate files


def read_gguf(path):
    """Keys and tensors {name: (dims, type, bytes)} of a GGUF file."""
    data = path.read_bytes()
    at = 0

    def take(code):
        nonlocal at
        values = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize("<" + code)
        return values if len(values) > 1 else values[0]

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    codes = {4: "I", 6: "f", 7: "?", 10: "Q", 12: "d"}
    assert take("4s") == b"GGUF" and take("I") == 3
    n_tensor, n_key = take("QQ")
    keys = {}
    for _ in range(n_key):
        name, kind = text(), take("I")
        if kind == 8:
            keys[name] = text()
        elif kind == 9:
            element, n = take("IQ")
            keys[name] = [take(codes[element]) for _ in range(n)]
        else:
            keys[name] = take(codes[kind])
    infos = []
    for _ in range(n_tensor):
        name, n_dim = text(), take("I")
        dims = [take("Q") for _ in range(n_dim)]
        infos.append((name, dims, *take("IQ")))
    start = (at + 31) // 32 * 32
    tensors = {}
    for name, dims, kind, offset in infos:
        n = math.prod(dims)
        n_byte = {0: 4 * n, 1: 2 * n, 8: n // 32 * 34}[kind]
        tensors[name] = (dims, kind, data[start + offset:start + offset + n_byte])
        assert len(tensors[name][2]) == n_byte
    return keys, tensors


def values_of(tensor):
    dims, kind, data = tensor
    n = math.prod(dims)
    if kind != 8:
        return list(struct.unpack(f"<{n}{'f' if kind == 0 else 'e'}", data))
    values = []
    for at in range(0, len(data), 34):
        scale, *numbers = struct.unpack_from("<e32b", data, at)
        values += [scale * q for q in numbers]
    return values


class ImportTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name) / "checkpoint"
        self.folder.mkdir()
        self.output = pathlib.Path(self.temporary.name) / "gates.gguf"
        self.write_config()

    def tearDown(self):
        self.temporary.cleanup()

    def write_config(self, **changes):
        config = {k: v for k, v in {**CONFIG, **changes}.items() if v is not None}
        (self.folder / "config.json").write_text(json.dumps(config))

    def run_script(self, *options):
        return subprocess.run(
            [sys.executable, str(SCRIPT), str(self.folder), "-o", str(self.output), *options],
            capture_output=True, text=True, check=False)

    def import_ok(self, *options):
        result = self.run_script(*options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return read_gguf(self.output)

    def refused(self, *words):
        result = self.run_script()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertFalse(self.output.exists())
        self.assertEqual(len(list(self.output.parent.iterdir())), 1)  # nothing temporary is left

    def write_torch(self, members, name="trimkv_weights.pth", **options):
        write_zip(self.folder / name, members, **options)

    def test_torch_file_of_each_type(self):
        state = make_state()
        for kind in ("F32", "F16", "BF16"):
            for share in (False, True):
                self.write_torch(torch_members(state, kind, share=share))
                keys, tensors = self.import_ok("--type", "f32")
                self.assertEqual(keys["general.architecture"], "kvbound-gates")
                self.assertEqual(keys["kvbound-gates.version"], 1)
                self.assertEqual(keys["kvbound-gates.base.architecture"], "qwen3")
                self.assertEqual(keys["kvbound-gates.base.name"], "Qwen3-4B")
                self.assertEqual(keys["kvbound-gates.base.vocab_size"], 300)
                self.assertEqual(keys["kvbound-gates.hidden_lengths"], [64])
                self.assertFalse(keys["kvbound-gates.tied_output"])
                self.assertEqual(len(tensors), 2 * 4)
                for layer in range(2):
                    for part, to in (("linear1.weight", "linear1.weight"),
                                     ("linear1.bias", "linear1.bias"),
                                     ("linear2.weight", "output.weight"), ("bias", "output.bias")):
                        shape, values = state[
                            f"model.layers.{layer}.self_attn.retention_gate.{part}"]
                        dims, _, _ = found = tensors[f"blk.{layer}.gate.{to}"]
                        self.assertEqual(dims, shape[::-1])
                        self.assertEqual(values_of(found), rounded(kind, values), (kind, part))

    def test_safetensors_gives_the_same_file(self):
        state = make_state()
        self.write_torch(torch_members(state))
        self.import_ok()
        from_torch = self.output.read_bytes()
        (self.folder / "trimkv_weights.pth").unlink()
        write_safetensors(self.folder / "model.safetensors", state)
        self.import_ok()
        self.assertEqual(self.output.read_bytes(), from_torch)

    def test_types_of_the_output(self):
        state = make_state()
        write_safetensors(self.folder / "model.safetensors", state)
        exact = state["model.layers.1.self_attn.retention_gate.linear1.weight"][1]
        for kind, number, tolerance in (("f32", 0, 0.0), ("f16", 1, 3e-4), ("q8_0", 8, 2.5e-3)):
            _, tensors = self.import_ok("--type", kind)
            found = tensors["blk.1.gate.linear1.weight"]
            self.assertEqual(found[1], number)
            self.assertEqual(tensors["blk.1.gate.linear1.bias"][1], 0)
            for a, b in zip(values_of(found), rounded("F32", exact)):
                self.assertLessEqual(abs(a - b), tolerance)

    def test_two_hidden_linears_and_a_tied_output(self):
        write_safetensors(self.folder / "a.safetensors", make_state(hidden=(64, 32), tied=True))
        keys, tensors = self.import_ok()
        self.assertTrue(keys["kvbound-gates.tied_output"])
        self.assertEqual(keys["kvbound-gates.hidden_lengths"], [64, 32])
        self.assertIn("gate.output.weight", tensors)
        self.assertNotIn("blk.0.gate.output.weight", tensors)
        self.assertEqual(tensors["blk.1.gate.linear2.weight"][0], [64, 32])

    def test_an_output_that_the_file_holds_once_is_tied(self):
        state = make_state(hidden=(64, 32), tied=True)
        for part in ("linear3.weight", "bias"):
            del state[f"model.layers.1.self_attn.retention_gate.{part}"]
        write_safetensors(self.folder / "a.safetensors", state)
        self.assertTrue(self.import_ok()[0]["kvbound-gates.tied_output"])

    def test_gates_among_a_whole_model_in_shards(self):
        state = make_state()
        for layer in range(2):
            shard = {k: v for k, v in state.items() if f"layers.{layer}." in k}
            shard[f"model.layers.{layer}.self_attn.q_proj.weight"] = ([1, 1], [0.5])
            write_safetensors(self.folder / f"model-{layer}.safetensors", shard)
        self.assertEqual(len(self.import_ok()[1]), 8)

    def test_architecture_of_the_authors_classes(self):
        write_safetensors(self.folder / "a.safetensors", make_state())
        for model_type, classes, expected in (("trimkv_qwen3", [], "qwen3"), ("llama", [], "llama"),
                                              ("trimkv", ["TrimKVQwen3ForCausalLM"], "qwen3")):
            self.write_config(model_type=model_type, architectures=classes)
            self.assertEqual(self.import_ok()[0]["kvbound-gates.base.architecture"], expected)

    def test_pickled_code_is_refused_and_not_run(self):
        trap = self.output.parent / "ran"

        class Trap:
            def __reduce__(self):
                return os.system, (f"touch {trap}",)

        for value in (Trap(), {"a": [Trap()]}):
            self.write_torch({"data.pkl": pickled(value)})
            self.refused("trimkv_weights.pth", f"{os.system.__module__}.system", "refused, not run")
        self.write_torch({"data.pkl": b"\x80\x02c__builtin__\neval\nU\x0bprint('hi')\x85R."})
        self.refused("__builtin__.eval", "not run")
        self.write_torch({"data.pkl": b"(S'touch'\nios\nsystem\n."})
        self.refused("instruction STRING")
        self.assertFalse(trap.exists())

    def test_pickles_that_are_not_state_dicts(self):
        whole = torch_members(make_state())
        cases = [(b"", "pickle"), (whole["data.pkl"][:-1], "pickle"), (b"\x80\x02].", "state dict"),
                 (b"\x80\x02}(K\x01K\x02u.", "names as keys"), (b"\x80\x02u.", "broken"),
                 (b"\x80\x02j\xff\xff\xff\xff.", "broken"), (b"\x80\x02K\x01Q.", "storage"),
                 (b"\x80\x02ccollections\nOrderedDict\nK\x05\x85R.", "broken"),
                 (b"\x80\x02X\x03\x00\x00\x00abc)R.", "a call of a str")]
        deep = b"\x80\x02)" + b"q\x00h\x00\x86" * 200 + b")R."  # a tree of 2^200 leaves
        for data, word in cases + [(deep, "making of a tensor")]:
            self.write_torch({"data.pkl": data})
            self.refused("trimkv_weights.pth", word)

    def test_torch_files_that_lie(self):
        whole = torch_members(make_state())
        self.write_torch({k: v for k, v in whole.items() if k != "data/3"})
        self.refused("data/3", "no such file")
        self.write_torch({**whole, "data/3": b"1234"})
        self.refused("bytes in archive/data/3", "found 4")
        self.write_torch({**whole, "byteorder": "big"})
        self.refused("byte order")
        self.write_torch(whole, compression=zipfile.ZIP_DEFLATED)
        self.refused("not compressed")
        self.write_torch(torch_members(make_state(), storage_name="IntStorage"))
        self.refused("torch.IntStorage")
        path = self.folder / "trimkv_weights.pth"
        path.write_bytes(path.read_bytes()[:1000])
        self.refused("trimkv_weights.pth", "zip")
        path.write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
        self.refused("older one")

    def test_safetensors_that_lie(self):
        path = self.folder / "a.safetensors"
        write_safetensors(path, make_state())
        good = path.read_bytes()
        for data, word in ((b"", "0 bytes"), (b"\xff" * 16, "header of"), (good[:-4], "inside"),
                           (good[:8] + b"[" + good[9:], "JSON"),
                           (good.replace(b'"F32"', b'"I32"'), "F32, F16 or BF16"),
                           (good.replace(b"[64, 32]", b"[65, 32]"), "for shape"),
                           (good.replace(b"data_offsets", b"data_offsetz"), "data_offsets")):
            path.write_bytes(data)
            self.refused("a.safetensors", word)

    def test_gates_that_do_not_fit(self):
        path = self.folder / "a.safetensors"
        prefix = "layers.1.self_attn.retention_gate."

        def changed(change, *words):
            state = make_state()
            change(state)
            write_safetensors(path, state)
            self.refused(*words)

        changed(lambda s: s.pop(f"model.{prefix}linear1.bias"), f"{prefix}linear1.bias", "missing")
        changed(lambda s: s.update({f"model.{prefix}gate.weight": ([1], [0.0])}),
                f"{prefix}gate.weight", "unknown")
        changed(lambda s: s.update({f"model.{prefix}linear1.weight": ([64, 16], [0.0] * 1024)}),
                f"{prefix}linear1.weight", "[64, 32]", "[64, 16]")
        changed(lambda s: s[f"model.{prefix}bias"][1].__setitem__(1, math.nan), f"{prefix}bias",
                "finite", "nan at element 1")
        changed(lambda s: s[f"model.{prefix}linear1.weight"][1].__setitem__(7, 1e6),
                f"{prefix}linear1.weight", "range of f16")
        changed(lambda s: s.clear(), "retention_gate", "found none")
        write_safetensors(path, make_state(n_layer=3))
        self.refused("layers.2", "num_hidden_layers")
        write_safetensors(path, make_state())
        self.write_config(num_key_value_heads=4)
        self.refused("linear2.weight", "[4, 64]", "[2, 64]")

    def test_configurations_that_do_not_fit(self):
        write_safetensors(self.folder / "a.safetensors", make_state())
        for change, words in (({"model_type": "phi3", "architectures": ["Phi3ForCausalLM"]},
                               ("model_type", "qwen3", "phi3")),
                              ({"hidden_act": "gelu_new"}, ("hidden_act", "silu", "gelu_new")),
                              ({"hidden_size": "32"}, ("hidden_size", "an integer")),
                              ({"num_hidden_layers": None}, ("num_hidden_layers", "nothing"))):
            self.write_config(**change)
            self.refused("config.json", *words)
        (self.folder / "config.json").write_text("{")
        self.refused("config.json", "JSON")
        (self.folder / "config.json").unlink()
        self.refused("config.json", "No such file")
        self.write_config()
        (self.folder / "a.safetensors").unlink()
        self.refused("trimkv_weights.pth or *.safetensors", "neither")

    def test_q8_0_needs_sizes_divisible_by_32(self):
        write_safetensors(self.folder / "a.safetensors", make_state(hidden=(48,)))
        result = self.run_script("--type", "q8_0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("48; use --type f16", result.stderr)

    def test_a_failure_leaves_the_old_file(self):
        self.output.write_bytes(b"old")
        write_safetensors(self.folder / "a.safetensors", make_state(n_layer=1))
        self.assertEqual(self.run_script().returncode, 1)
        self.assertEqual(self.output.read_bytes(), b"old")

    def test_output_that_cannot_be_written(self):
        write_safetensors(self.folder / "a.safetensors", make_state())
        for output, word in ((self.folder / "no" / "g.gguf", "No such file"),
                             (self.folder, "a folder"), (pathlib.Path("/dev/null"), "device")):
            self.output = output
            result = self.run_script()
            self.assertEqual(result.returncode, 1, output)
            self.assertIn(str(output), result.stderr)
            self.assertIn(word, result.stderr)
            self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main()
