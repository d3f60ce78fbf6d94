#!/usr/bin/env python3
"""Lets the torch of PyPI be imported without CUDA's own 4 GB of wheels, on a machine that has no GPU anyway.

    cuda_stubs.py SITE-PACKAGES/torch/lib

That torch is linked against CUDA's libraries, so the loader wants them although a CPU run calls none of their functions.
This compiles an empty stand-in for each of them. A function in one answers "no device", which is the truth.
"""

import pathlib
import re
import subprocess
import sys

CUDAS_LIBRARY = re.compile(r"lib(cu|nccl|nv)")
OF_CUDA = re.compile(r"(__)?(cu|nccl|nv)[A-Za-z]")
NO_DEVICE = 100  # cudaErrorNoDevice
LOOSE = "libcuda_stand_in.so"
TEXTS = {"cudaGetErrorString", "cudaGetErrorName", "ncclGetErrorString", "ncclGetLastError", "cudnnGetErrorString"}


def lines(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()


def versions(library):
    """Version name -> soname of the library that has it."""
    owners, soname = {}, ""
    for line in lines("readelf", "-V", "-W", str(library)):
        if found := re.search(r"File: (\S+)", line):
            soname = found.group(1)
        elif soname and (found := re.search(r"Name: (\S+)", line)):
            owners[found.group(1)] = soname
    return owners


def undefined(library):
    """(symbol, version or "") of what a library expects from others."""
    for line in lines("nm", "-D", "--undefined-only", "--with-symbol-versions", str(library)):
        name, _, version = line.split()[-1].partition("@")
        yield name, version.lstrip("@")


def missing(libraries):
    """Sonames of CUDA's that some library needs. What the system has is left out of account: the same stand-ins everywhere."""
    needed = set()
    for library in libraries:
        needed.update(re.findall(r"\(NEEDED\).*\[(.+)\]", "\n".join(lines("readelf", "-d", str(library)))))
    return sorted(name for name in needed - {each.name for each in libraries} if CUDAS_LIBRARY.match(name))


def source(symbols):
    body = []
    for symbol in sorted(symbols):
        if symbol in TEXTS:
            body.append(f'const char* {symbol}(void) {{ return "a stand-in: there is no CUDA here"; }}')
        else:
            body.append(f"int {symbol}(void) {{ return {NO_DEVICE}; }}")
    return "\n".join(body)


def compile_stub(folder, soname, versioned, needs=None):
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-w",
        "-fno-builtin",
        "-nostdlib",
        "-o",
        str(folder / soname),
        f"-Wl,-soname,{soname}",
    ]
    if needs:
        command += ["-Wl,--no-as-needed", f"-L{folder}", "-Wl,-rpath,$ORIGIN", f"-l:{needs}"]
    if any(versioned):
        script = folder / f".{soname}.map"
        script.write_text(
            "".join(
                f"{version} {{ {' '.join(f'{name};' for name in sorted(names))} }};\n"
                for version, names in versioned.items()
                if version
            )
        )
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, "-x", "c", "-"], input=source(set().union(*versioned.values())), text=True, check=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    made = folder / "stand-ins.txt"
    for name in made.read_text().split() if made.exists() else ():
        (folder / name).unlink(missing_ok=True)
    libraries = sorted(folder.glob("*.so*"))
    wanted = missing(libraries)
    owned = {soname: {} for soname in wanted}  # soname -> version -> symbols
    loose = set()  # symbols without a version: any library will do
    for library in libraries:
        owners = versions(library)
        for name, version in undefined(library):
            if owners.get(version) in owned:
                owned[owners[version]].setdefault(version, set()).add(name)
            elif not version and OF_CUDA.match(name):
                loose.add(name)
    compile_stub(folder, LOOSE, {"": loose})
    for soname, versioned in owned.items():
        compile_stub(folder, soname, versioned, needs=LOOSE)
    made.write_text("\n".join([LOOSE, *wanted]))
    print("stand-ins:", *wanted)


if __name__ == "__main__":
    main()
