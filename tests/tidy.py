#!/usr/bin/env python3
"""Holds the rules that a compiler can't: who may include whom, sizes, dead files, disabled tests, links.

    tests/tidy.py                     check the tree; one finding a line, exit 1 when there is one. With a
                                      configured build/release or build/dev, also compile each header alone
                                      that no source includes first
    tests/tidy.py --build FOLDER      the same, with the include paths of this build folder
    tests/tidy.py --self-test         plant one of each fault in a scratch tree and see that it is found

Standard library only. A check is a generator of findings with a docstring that says what it wants.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
LINE_COLUMNS_MAX = 120  # clang-format breaks at 110; what it can't break may be a little longer

# design.md section 2: who may include whom.
MAY_INCLUDE = {
    "proto": {"proto"},
    "transport": {"transport"},
    "kernels": {"kernels"},
    "node": {"node", "proto", "transport", "kernels"},
    "client": {"client", "proto", "transport", "kernels"},
    "tests": {"tests", "node", "client", "proto", "transport", "kernels"},
}
# node/DESIGN.md: the rooms of a node, "" for the folder itself.
NODE_MAY_INCLUDE = {
    "": {"", "owner", "ssd", "cluster"},
    "owner": {"", "owner", "eviction", "ssd"},
    "eviction": {"", "eviction"},
    "ssd": {"", "ssd"},
    "cluster": {"", "cluster", "owner", "membership"},
    "membership": {"", "membership"},
    "events": {"", "events", "owner"},
    "daemon": {"", "daemon", "events", "cluster", "membership"},
}
# Foreign headers stay in the folder that owns them.
OWNED_HEADERS = {
    r"(ucp|uct|ucs)/": ("transport/ucx/",),
    r"rocksdb/": ("node/",),
    r"(cuda|cuda_runtime|cuda_runtime_api)\.h|nvtx3/": ("kernels/",),
    r"(grpcpp|grpc|google/protobuf)/|.*\.pb\.h": ("node/", "client/cli/", "tests/"),
    r"openssl/": ("proto/", "transport/"),
    r"zmq\.h": ("node/",),
    r"(gtest|gmock)/": ("tests/",),
    r"(CLI/|toml\+\+/|toml\.hpp|spdlog/|nlohmann/|prometheus/)": ("node/", "client/cli/", "client/config/", "tests/"),
}
TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "CHANGELOG.md", "LICENSE", "README.md", "proto", "node",
             "client", "transport", "kernels", "deploy", "tests"}
SOURCES = (".cc", ".h", ".cu", ".cuh", ".c")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


class Tree:
    """The files of a checkout: tracked ones and new ones that git does not ignore."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
                                capture_output=True, check=False)
        if listed.returncode == 0:
            names = [name for name in listed.stdout.decode().split("\0") if name]
        else:
            names = [str(path.relative_to(root)) for path in self.root.rglob("*") if path.is_file()]
        self.files = sorted(name for name in set(names) if (self.root / name).is_file())
        self._texts = {}

    def text(self, name):
        if name not in self._texts:
            self._texts[name] = (self.root / name).read_text(encoding="utf-8", errors="replace")
        return self._texts[name]

    def lines(self, name):
        return self.text(name).splitlines()

    def sources(self, *suffixes):
        return [name for name in self.files if name.endswith(suffixes or SOURCES)]

    def scripts(self):
        return [name for name in self.files
                if name.endswith((".sh", ".py")) or self.text(name).startswith("#!")]


def includes(tree, name):
    for number, line in enumerate(tree.lines(name), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def check_include_directions(tree):
    """proto, transport and kernels know nobody; node and client never meet; includes are rooted and exist."""
    for name in tree.sources():
        folder = name.split("/")[0]
        for number, ours, path in includes(tree, name):
            if not ours:
                continue
            target = path.split("/")[0]
            if target not in MAY_INCLUDE.get(folder, set()):
                yield f"{name}:{number}: {folder} may not include \"{path}\""
            elif folder == target == "node" and room_of(path) not in NODE_MAY_INCLUDE.get(room_of(name), set()):
                yield f"{name}:{number}: node/{room_of(name)} may not include \"{path}\""
            elif not path.endswith(".pb.h") and path not in tree.files:
                yield f"{name}:{number}: \"{path}\" is not there (includes are rooted at the repository)"


def room_of(name):
    """The folder below node/ that a file is in; "" for node/ itself."""
    return "/".join(name.split("/")[1:-1])


def check_owned_headers(tree):
    """Foreign headers stay inside the folder that owns them: a leaked header is a leaked dependency."""
    for name in tree.sources():
        for number, _, path in includes(tree, name):
            for pattern, owners in OWNED_HEADERS.items():
                if re.match(pattern, path) and not name.startswith(owners):
                    yield f"{name}:{number}: {path} belongs to {' and '.join(owners)}"


def check_file_sizes(tree):
    """One sitting should hold a file."""
    for name in tree.sources() + tree.scripts():
        count = len(tree.lines(name))
        if count > FILE_LINES_MAX:
            yield f"{name}: {count} lines; the limit is {FILE_LINES_MAX}"


def check_line_lengths(tree):
    """Lines that a reader's window holds; tables that clang-format leaves alone may be wider."""
    for name in tree.sources():
        table = False
        for number, line in enumerate(tree.lines(name), 1):
            table = "clang-format off" in line or (table and "clang-format on" not in line)
            if not table and len(line) > LINE_COLUMNS_MAX:
                yield f"{name}:{number}: {len(line)} columns; the limit is {LINE_COLUMNS_MAX}"


def blanked(text):
    """The code with comments, literals and preprocessor lines turned into spaces; line breaks stay."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    keep_breaks = lambda match: re.sub(r"[^\n]", " ", match.group(0))  # noqa: E731
    # Digit separators (1'000) are no character literals.
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", " ", text)
    text = token.sub(keep_breaks, text)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", keep_breaks, text, flags=re.M)


def functions(text):
    """(first line, last line) of each function body that stands in a namespace or class."""
    code = blanked(text)
    scopes = []  # "outer", "function" with its first line, or "other"
    head_start = 0
    line = 1
    for at, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == ";" or (char == ":" and code[max(0, at - 9):at].strip().endswith(("public", "private"))):
            head_start = at + 1
        elif char == "{":
            head = code[head_start:at]
            if any(kind != "outer" for kind, _ in scopes):
                scopes.append(("other", 0))
            elif re.search(r"\b(namespace|class|struct|union)\b", head) and not re.search(r"\)\s*(const)?\s*$", head):
                scopes.append(("outer", 0))
            elif ")" in head and not re.search(r"\benum\b", head):
                first = line - head.lstrip().count("\n")
                scopes.append(("function", first))
            elif re.search(r'\bextern\s*$', head.strip()):
                scopes.append(("outer", 0))
            else:
                scopes.append(("other", 0))
            head_start = at + 1
        elif char == "}" and scopes:
            kind, first = scopes.pop()
            if kind == "function":
                yield first, line
            head_start = at + 1


def check_function_lengths(tree):
    """A function fits a screen."""
    for name in tree.sources():
        for first, last in functions(tree.text(name)):
            if last - first + 1 > FUNCTION_LINES_MAX:
                yield f"{name}:{first}: a function of {last - first + 1} lines; the limit is {FUNCTION_LINES_MAX}"


def check_disabled_tests(tree):
    """A test runs, or says why it can't; it is never parked."""
    for name in tree.files:
        if not name.startswith("tests/") or name == "tests/tidy.py":
            continue
        text = tree.text(name)
        for number, line in enumerate(text.splitlines(), 1):
            if "DISABLED_" in line or re.match(r"\s*#\s*if\s+0\b", line):
                yield f"{name}:{number}: a disabled test: mend it or delete it"
            if re.search(r"@(unittest|pytest\.mark)\.skip\b(?!\s*\(\s*[\"'r])", line):
                yield f"{name}:{number}: a skip without a reason"
        for match in re.finditer(r"\bGTEST_SKIP\(\)\s*(;|<<)", text):
            if match.group(1) == ";":
                yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: GTEST_SKIP without a reason"


def anchor(heading):
    plain = re.sub(r"[`*_]|\[([^]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def check_links(tree):
    """Relative links in the documents lead somewhere."""
    for name in tree.files:
        if not name.endswith(".md"):
            continue
        prose = re.sub(r"```.*?```", lambda m: "\n" * m.group(0).count("\n"), tree.text(name), flags=re.S)
        for match in re.finditer(r"\[[^]]*\]\(([^)\s]+)\)", prose):
            target = match.group(1)
            if re.match(r"[a-z]+:", target):
                continue
            path, _, fragment = target.partition("#")
            where = f"{name}:{prose.count(chr(10), 0, match.start()) + 1}"
            aim = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if not (tree.root / aim).exists():
                yield f"{where}: the link to {target} leads nowhere"
            elif fragment and aim.endswith(".md"):
                headings = re.findall(r"^#+\s+(.*)$", tree.text(aim), flags=re.M)
                if fragment not in map(anchor, headings):
                    yield f"{where}: {aim} has no heading #{fragment}"


def check_todos(tree):
    """What is left to do names an issue."""
    for name in tree.files:
        if name == "tests/tidy.py" or name.endswith(".json"):
            continue
        for number, line in enumerate(tree.lines(name), 1):
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line) and not re.search(r"#\d+", line):
                yield f"{name}:{number}: a TODO without its issue (#number)"


def check_listed_sources(tree):
    """Every source is named in a CMake file: what isn't built is dead."""
    cmake = [name for name in tree.files if name.endswith(("CMakeLists.txt", ".cmake"))]
    for name in tree.sources(".cc", ".cu", ".c"):
        if not any(names_source(tree.text(listing), os.path.dirname(listing), name) for listing in cmake):
            yield f"{name}: no CMakeLists.txt names it"


def names_source(listing, folder, name):
    """By its path from the listing's folder, by a longer path, or without suffix as the argument of a function."""
    if os.path.dirname(name).startswith(folder):
        path = re.escape(os.path.relpath(name, folder or "."))
        stem = re.escape(os.path.splitext(os.path.relpath(name, folder or "."))[0])
        pattern = rf"(^|[\s/(\"]){path}($|[\s)\"])|\({stem}[\s)]"
    else:
        path = re.escape("/".join(name.split("/")[-2:]))
        pattern = rf"/{path}($|[\s)\"])"
    return re.search(pattern, listing, flags=re.M) is not None


# Folders whose sources are never compiled together (UNITY_BUILD OFF), or are programs of one file.
APART = ("tests/", "node/eviction/", "client/examples/")


def check_joined_names(tree):
    """Two sources of a folder name no constant alike: sanitized builds join them, in batches that shift."""
    owners = {}
    for name in tree.sources(".cc"):
        if name.startswith(APART):
            continue
        for hidden in re.findall(r"^namespace \{\n(.*?)^\}  // namespace\n", tree.text(name), flags=re.M | re.S):
            for constant in re.findall(r"^(?:constexpr|const)\s+[^=;{(]*?\b(k[A-Z]\w*)\b", hidden, flags=re.M):
                first = owners.setdefault((os.path.dirname(name), constant), name)
                if first != name:
                    yield f"{name}: {constant} is in {first} too"


def check_layout(tree):
    """The top level is the design's; no common/ and no utils/, which only grow."""
    for name in tree.files:
        top = name.split("/")[0]
        if not top.startswith(".") and top not in TOP_LEVEL:
            yield f"{name}: {top} is not part of the top level"
        if re.search(r"(^|/)(common|utils?)/", name):
            yield f"{name}: name the folder after what it holds"
        if name.startswith("deploy/") and name.endswith(SOURCES):
            yield f"{name}: deploy packages binaries only"


def check_habits(tree):
    """#pragma once; no -march=native; processes end by pid; nothing of one machine in the project."""
    for name in tree.files:
        text = tree.text(name)
        if name.endswith(".h") and "#pragma once" not in text:
            yield f"{name}: a header without #pragma once"
        if name == "tests/tidy.py":
            continue
        bans = [(r"-march=native", "a binary must run on the next machine"),
                (r"(^|[\s;&|(`])(pkill|killall)\s", "end processes by pid, never by name"),
                (r"/work/(main|shared)\b|\.\./\.library", "a path of one machine")]
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, why in bans:
                if re.search(pattern, line):
                    yield f"{name}:{number}: {re.search(pattern, line).group(0).strip()}: {why}"


def check_metrics(tree):
    """Every metric that documents and dashboards name exists."""
    declared = set()
    for name in tree.sources(".cc"):
        if name.startswith("node/daemon/metrics"):
            declared |= set(re.findall(r'"(larder_[a-z0-9_]+)"', tree.text(name)))
    if not declared:
        return
    for name in tree.files:
        if not name.startswith(("deploy/", "README", "node/")) or not name.endswith((".md", ".json", ".yaml")):
            continue
        for number, line in enumerate(tree.lines(name), 1):
            for metric in re.findall(r"\blarder_[a-z0-9_]+(?:_total|_bytes|_seconds)\b", line):
                if metric not in declared:
                    yield f"{name}:{number}: nobody exports {metric}"


CHECKS = [check_include_directions, check_owned_headers, check_file_sizes, check_line_lengths,
          check_function_lengths, check_disabled_tests, check_links, check_todos, check_listed_sources,
          check_layout, check_joined_names, check_habits, check_metrics]


def include_flags(build):
    """-I and -D of every target in compile_commands.json, once each."""
    import json
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    flags = {}
    for entry in commands:
        words = entry["command"].split()
        for at, word in enumerate(words):
            if word == "-isystem":
                flags[f"-isystem {words[at + 1]}"] = None
            elif word.startswith(("-I", "-D")):
                flags[word.replace('\\"', '"')] = None
    return [word for flag in flags for word in flag.split(" ", 1)]


def check_headers_alone(tree, build):
    """Each header compiles alone. One that a source includes first is proven by the build; the rest is tried."""
    proven = set()
    for name in tree.sources(".cc"):
        if name.startswith(("tests/", "client/cli/")):
            continue  # compiled several at a time, so others may have come before it
        first = next((path for _, ours, path in includes(tree, name) if ours), None)
        proven.add(first)
    flags = include_flags(build)
    ours = [name for name in tree.sources(".h") if name not in proven and not skipped_header(tree, name)]

    def compile_one(name):
        command = ["c++", "-std=c++20", "-fsyntax-only", "-O0", "-w", *flags, f"-I{tree.root}", "-include", name,
                   "-x", "c++", "/dev/null"]
        done = subprocess.run(command, cwd=tree.root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            error = next((line for line in done.stderr.splitlines() if "error" in line), "does not compile")
            return f"{name}: does not compile alone: {error}"
        return None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(compile_one, ours))


def skipped_header(tree, name):
    """Headers of libraries that this machine may lack."""
    return bool(re.search(r"#\s*include\s*<(cuda|ucp/)", tree.text(name))) and not os.path.exists("/usr/include/ucp")


def run_checks(root, build=None):
    tree = Tree(root)
    findings = {check.__name__: sorted(check(tree)) for check in CHECKS}
    if build:
        findings["check_headers_alone"] = sorted(check_headers_alone(tree, build))
    return findings


# --- self-test: each fault in a scratch tree, and what must be said about it --------------------------------
FAULTS = {
    "check_include_directions": [("proto/a.h", '#pragma once\n#include "transport/b.h"\n'),
                                 ("client/a.h", '#pragma once\n#include "node/b.h"\n'),
                                 ("node/ssd/a.h", '#pragma once\n#include "node/owner/b.h"\n'),
                                 ("node/a.h", '#pragma once\n#include "proto/missing.h"\n')],
    "check_owned_headers": [("node/a.h", "#pragma once\n#include <ucp/api/ucp.h>\n"),
                            ("client/a.h", "#pragma once\n#include <grpcpp/grpcpp.h>\n")],
    "check_file_sizes": [("node/a.h", "#pragma once\n" + "\n" * 800)],
    "check_line_lengths": [("node/a.h", "#pragma once\n// " + "x" * 120 + "\n")],
    "check_function_lengths": [("node/a.h", "#pragma once\nnamespace n {\nclass C {\n public:\n  void F(int a) {\n"
                                + "    G();\n" * 70 + "  }\n};\n}\n")],
    "check_disabled_tests": [("tests/a.h", "#pragma once\nTEST(A, DISABLED_B) {}\n"),
                             ("tests/b.h", "#pragma once\nTEST(A, B) { GTEST_SKIP(); }\n")],
    "check_links": [("README.md", "see [it](gone.md)\n"), ("CHANGELOG.md", "# One\n[it](#two)\n")],
    "check_todos": [("node/a.h", "#pragma once\n// TODO: mend\n")],
    "check_listed_sources": [("node/dead.cc", "int a;\n")],
    "check_layout": [("misc/a.txt", "a\n"), ("node/utils/a.h", "#pragma once\n"), ("deploy/a.cc", "int a;\n")],
    "check_joined_names": [("node/b.cc", "namespace {\nconstexpr int kA = 1;\n}  // namespace\n")],
    "check_habits": [("node/a.h", "int a;\n"), ("CMakeLists.txt", "add_compile_options(-march=native)\n"),
                     ("deploy/stop", "#!/bin/sh\npkill larder-node\n")],
    "check_metrics": [("README.md", "`larder_gone_total`\n")],
}
GOOD = {
    "CMakeLists.txt": "add_library(x node/a.cc)\n",
    "README.md": "# Larder\n[here](#larder) and [there](node/a.h)\n```\n[not](a.link)\n```\n",
    "node/a.h": '#pragma once\n#include "proto/b.h"\n// TODO(#7): later\nstruct A { int f() { return 1; } };\n',
    "node/daemon/metrics.cc": '#include "node/a.h"\nconst char* kName = "larder_gets_total";  // it\'s { fine }\n',
    "node/a.cc": '#include "node/a.h"\nnamespace {\nconst int kA = 1;\n}  // namespace\nint B() {\n  return 1\'000; }\nint kTable[] = {\n' + "  1,\n" * 80 + "};\n",
    "node/CMakeLists.txt": "target_sources(x PRIVATE daemon/metrics.cc)\n",
    "proto/b.h": "#pragma once\n",
    "tests/c.h": '#pragma once\nTEST(A, B) { GTEST_SKIP() << "no device here"; }\n',
}


def plant(root, files):
    for name, text in files:
        path = pathlib.Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def self_test():
    failed = 0
    with tempfile.TemporaryDirectory() as root:
        plant(root, GOOD.items())
        noise = [line for lines in run_checks(root).values() for line in lines]
        if noise:
            print("self-test: a good tree is found fault with:", *noise, sep="\n  ")
            failed += 1
    cases = [(check, fault) for check, faults in FAULTS.items() for fault in faults]
    for check, (name, text) in cases:
        with tempfile.TemporaryDirectory() as root:
            plant(root, [*GOOD.items(), (name, text)])
            if not any(line.startswith(name) for line in run_checks(root)[check]):
                print(f"self-test: {check} overlooks the fault in {name}")
                failed += 1
    untested = [check.__name__ for check in CHECKS if check.__name__ not in FAULTS]
    if untested:
        print("self-test: no fault for", *untested)
        failed += 1
    print(f"tidy self-test: {len(cases) + 1} cases, {failed} failed")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", help="the configured build folder with which headers are compiled alone")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 1 if self_test() else 0
    configured = (folder for name in ("release", "dev") if
                  (folder := pathlib.Path(arguments.root) / "build" / name / "compile_commands.json").exists())
    findings = run_checks(arguments.root, arguments.build or next((at.parent for at in configured), None))
    for lines in findings.values():
        for line in lines:
            print(line)
    bad = sum(1 for lines in findings.values() if lines)
    total = sum(len(lines) for lines in findings.values())
    print(f"tidy: {len(findings) - bad} of {len(findings)} checks are clean, {total} findings")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
