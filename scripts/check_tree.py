#!/usr/bin/env python3
"""Checks what the compiler cannot: the rules of docs/design.md and CONTRIBUTING.md on the tree.

Prints one line per finding, FILE:LINE: what is wrong, and exits with 1 if there is any.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = {".cc", ".h", ".md", ".py", ".sh", ".txt", ".cmake", ".json"}
EVERYWHERE_BUT_SRC = ("tests/", "bench/", "fuzz/", "train/")
GGML_WALL = ("src/model/", "src/scoring/", "src/kv/") + EVERYWHERE_BUT_SRC
LLAMA_WALL = ("src/text/",) + EVERYWHERE_BUT_SRC
LINE_LIMITS = {".h": 200, ".cc": 500}
LINE_LENGTH = 100

# What a file under src/ may not do: print, end the process, read the environment.
LIBRARY_BANS = [
    (r"\bgetenv\s*\(", "the library does not read the environment"),
    (r"\b(?:std::)?(?:exit|abort|quick_exit|terminate)\s*\(", "the library does not end the process"),
    (r"\b(?:printf|puts|putchar|perror)\s*\(|std::c(?:out|err|log)\b", "the library does not print"),
]
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:%s)/\w" % "|".join(["work", "home", "root"]))
OPEN_WORK = re.compile(r"\b(?:%s)\b" % "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]))
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')

findings = []


def report(path, line, message):
    findings.append(f"{path}:{line}: {message}")


def tracked_files():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in sorted(names.stdout.decode().split("\0")):
        path = ROOT / name
        if name and path.is_file():
            yield name, path


def check_text(name, text):
    if text and not text.endswith("\n"):
        report(name, text.count("\n") + 1, "no newline at the end of the file")
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            report(name, number, "white space at the end of the line")
        if not name.startswith("examples/"):
            if MACHINE_PATH.search(line):
                report(name, number, "a path of one machine")
            if OPEN_WORK.search(line):
                report(name, number, "work left open in the text")


def check_source(name, lines):
    suffix = pathlib.Path(name).suffix
    limit = LINE_LIMITS[suffix]
    if len(lines) > limit and not any(re.match(r"// size: \S", line) for line in lines):
        report(name, len(lines), f"{len(lines)} lines, expected at most {limit} "
               "(or a line '// size: reason')")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LENGTH:
            report(name, number, f"longer than {LINE_LENGTH} columns")
        include = INCLUDE.match(line)
        if include:
            check_include(name, number, include.group(1))
        if name.startswith("src/"):
            code = re.sub(r'"(?:[^"\\]|\\.)*"|//.*', "", line)
            for pattern, reason in LIBRARY_BANS:
                if re.search(pattern, code):
                    report(name, number, reason)
    if suffix == ".h":
        check_guard(name, lines)


def check_include(name, number, header):
    if re.match(r"(ggml|gguf)[\w-]*\.h$", header) and not name.startswith(GGML_WALL):
        report(name, number, f"includes {header}; only {', '.join(GGML_WALL[:3])} may")
    if re.match(r"llama[\w-]*\.h$", header) and not name.startswith(LLAMA_WALL):
        report(name, number, f"includes {header}; only {LLAMA_WALL[0]} may")
    if name.startswith("include/") and "/" in header and not header.startswith("kvbound/"):
        report(name, number, f"a public header includes {header}")
    if name.startswith("src/policy/") and header.startswith(("model/", "scoring/", "generate/")):
        report(name, number, f"a policy includes {header}; policies see plain spans")


def check_guard(name, lines):
    path = re.sub(r"^(?:src|include/kvbound|tests|include)/", "", name)
    guards = ["KVBOUND_" + re.sub(r"\W", "_", part).upper() + "_" for part in (path, name)]
    # -inl.h: Highway's, included once for each instruction set.
    opens = "#if defined({}) == defined(HWY_TARGET_TOGGLE)" if name.endswith("-inl.h") else "#ifndef {}"
    if not any(opens.format(g) in lines and f"#define {g}" in lines for g in guards):
        report(name, 1, f"expected the include guard {guards[0]}")


def check_links(name, text):
    folder = (ROOT / name).parent
    for match in re.finditer(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        target = match.group(1)
        if not re.match(r"[a-z]+:", target) and not (folder / target).exists():
            report(name, text[:match.start()].count("\n") + 1, f"link to {target}, which is absent")


def check_policies():
    """A policy has one spelling: in the registry, in its file's head block, in README's table."""
    registry = ROOT / "src/policy/registry.cc"
    names = re.findall(r'Entry\{"([^"]+)"', registry.read_text())
    heads = {}
    for path in registry.parent.glob("*.cc"):
        head = re.match(r"// ([a-z0-9, -]+): ", path.read_text())
        if head and "\n// Paper " in path.read_text():
            for name in head.group(1).split(", "):
                heads[name] = path.name
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("\n## Policies\n")[2].partition("\n## ")[0]
    table = re.findall(r"^\| `([^`]+)` \|", section, re.M)
    if table != names:
        report("README.md", 1, f"table of policies: expected {names}, found {table}")
    if sorted(heads) != sorted(names):
        report("src/policy/registry.cc", 1,
               f"head blocks of src/policy/*.cc: expected {sorted(names)}, found {sorted(heads)}")


def main():
    for name, path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            if path.suffix in TEXT:
                report(name, 1, "not UTF-8")
            continue
        check_text(name, text)
        if path.suffix in LINE_LIMITS:
            check_source(name, text.split("\n")[:-1])
        if path.suffix == ".md":
            check_links(name, text)
    check_policies()
    print("\n".join(findings) if findings else "tree check: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
