#!/usr/bin/env python3
"""Prints the copyright file of the packages: copyright.py RUST-TARGET

The licences of nodevigil and of each crate that is linked into it, with the crate's own licence files. Where a crate offers a choice,
the licence whose text is shortest counts.
"""
import hashlib
import json
import pathlib
import re
import subprocess
import sys

# Apache's text is 200 lines. Its packages have it elsewhere.
APACHE = "On Debian its text is /usr/share/common-licenses/Apache-2.0, in the rpm and in the image LICENSE in the same directory."
PREFERRED = ["MIT", "ISC", "BSD-3-Clause", "Zlib", "Unicode-3.0", "Apache-2.0"]


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def chosen(expression):
    """One licence of each alternative of an SPDX expression; "/" is an older form of "OR"."""
    parts = [re.split(r" OR |/", part.strip("() ").replace(" / ", "/")) for part in expression.split(" AND ")]
    return [next(name for name in PREFERRED if name in part) for part in parts]


def texts(directory, names):
    """The crate's licence files that hold the chosen licences, or all of them if their names do not show it."""
    files = sorted(path for path in directory.iterdir() if re.match(r"(?i)(licen[cs]e|copying|copyright|notice)", path.name))
    files = [path for path in files if path.is_file() and "apache" not in path.name.lower()]
    exact = [path for path in files if any(name.split("-")[0].lower() in path.name.lower() for name in names)]
    found = [path.read_text(errors="replace").strip() for path in exact or files]
    # One file may have several licences: Apache's is left out where it is the whole file.
    return [text for text in found if not re.match(r"\s*Apache License\s+Version 2", text)]


def main():
    target = sys.argv[1]
    tree = cargo("tree", "--locked", "--package=nodevigil", "--target", target, "--edges=normal,no-proc-macro", "--prefix=none", "--format={p}")
    linked = {tuple(line.split(" ")[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(cargo("metadata", "--locked", "--format-version=1", "--filter-platform", target))
    crates = [crate for crate in metadata["packages"] if (crate["name"], "v" + crate["version"]) in linked]
    if len(crates) != len(linked):
        sys.exit("copyright.py: cargo tree and cargo metadata differ")
    print("nodevigil, https://github.com/nodevigil/nodevigil\nCopyright 2026 the nodevigil maintainers\nLicense: Apache-2.0\n" + APACHE)
    print("\nThe binary is linked statically. It contains Rust's standard library (Copyright The Rust Project contributors, Apache-2.0),")
    print("musl (Copyright 2005-2020 Rich Felker, et al., MIT), and these crates of https://crates.io:\n")
    bodies = {}
    for crate in sorted(crates, key=lambda crate: (crate["name"], crate["version"])):
        if crate["source"] is None:
            continue
        names = chosen(crate["license"])
        marks = []
        for text in texts(pathlib.Path(crate["manifest_path"]).parent, names):
            marks.append(bodies.setdefault(hashlib.sha256(text.encode()).digest(), (len(bodies) + 1, text))[0])
        notices = ", ".join(f"[{mark}]" for mark in marks) or "by " + (", ".join(crate["authors"]) or "its authors")
        print(f"{crate['name']} {crate['version']}: {' AND '.join(names)} {notices}")
    print("\nApache-2.0: " + APACHE)
    for number, text in sorted(bodies.values()):
        print(f"\n[{number}] " + "-" * 60 + f"\n{text}")


main()
