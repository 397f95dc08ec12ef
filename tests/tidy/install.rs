//! Each target of the Makefile asks for the Debian packages of the programs that it calls.
//!
//! The install steps are run by make itself, with nothing but an `apt-get` in `PATH` that records what it is asked for.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tidy::repository;

/// Programs that the essential packages of Debian lack, besides those that the Makefile installs.
const LACKING: &str = "bc bunzip2 c++ clang cmake cpio curl debootstrap dig file gcc g++ gpg jq ld lsof nc objcopy objdump openssl patch \
    pgrep pkg-config pkill protoc ps python3 rsync socat strace strip sudo unzip wget xxd xz zip";
/// What a program calls in its turn, and what a text of the Makefile means.
const CALLS: &[(&str, &str)] = &[
    ("cargo", "cc"),
    ("$(call BUILD,$(TARGET)", "musl-gcc"),
    ("$(call BUILD,$(ARM_TARGET)", "aarch64-linux-gnu-gcc"),
    ("--target $(ARM_TARGET)", "aarch64-linux-gnu-gcc"),
    ("$(E2E)", "containerd"),
    ("--node", "qemu-system-x86_64"),
    ("--node", "debootstrap"),
];
const KEYWORDS: &[&str] = &["if", "then", "elif", "else", "while", "until", "do", "!", "{", "exec", "env", "time"];

/// Recipes by target, and the bodies of `define`.
struct Makefile {
    recipes: BTreeMap<String, Recipe>,
    macros: BTreeMap<String, String>,
}

#[derive(Default)]
struct Recipe {
    prerequisites: String,
    commands: String,
    is_documented: bool,
}

#[test]
fn each_target_asks_for_the_packages_of_the_programs_that_it_calls() {
    let makefile = Makefile::read();
    let documented = || makefile.recipes.iter().filter(|(_, recipe)| recipe.is_documented);
    let steps: BTreeSet<String> =
        makefile.recipes.values().flat_map(|recipe| calls(&recipe.commands, "INSTALL")).collect();
    let steps: BTreeMap<String, Step> =
        steps.into_iter().map(|arguments| (arguments.clone(), Step::run(&arguments))).collect();
    let installed = steps.values().flat_map(|step| step.programs.keys().map(String::as_str));
    let lacking: BTreeSet<&str> = LACKING.split_whitespace().chain(installed).collect();
    assert!(documented().count() > 15 && steps.len() > 5 && steps.values().all(|step| !step.programs.is_empty()));

    let mut wrong: Vec<String> = steps.values().flat_map(Step::not_requested).collect();
    for (target, _) in documented() {
        let text = makefile.closure(target);
        let asked: BTreeSet<&str> =
            calls(&text, "INSTALL").iter().flat_map(|call| steps[call].programs.keys().map(String::as_str)).collect();
        let called = programs(&text);
        let called = lacking.iter().filter(|program| called.contains(**program) && !asked.contains(**program));
        wrong.extend(called.map(|program| format!("make {target} calls {program}, and does not install it")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// An install step: what it is to install, and what it asks apt-get for on a system that has nothing.
struct Step {
    /// The packages of each program.
    programs: BTreeMap<String, Vec<String>>,
    requested: BTreeSet<String>,
}

impl Step {
    fn run(arguments: &str) -> Self {
        let bin = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bare");
        fs::remove_dir_all(&bin).ok();
        fs::create_dir_all(&bin).unwrap();
        symlink("/usr/bin/tr", bin.join("tr")).unwrap();
        for (name, script) in [("id", "echo 0"), ("apt-get", "echo \"$@\" >>\"$0.log\"")] {
            fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        make(&format!("probe: ; @$(call INSTALL,{arguments})"), &bin);
        let log = fs::read_to_string(bin.join("apt-get.log")).unwrap_or_default();
        // `: ;` has make start a shell, which needs no program for echo.
        let pairs = make(&format!("probe: ; @: ; echo '{arguments}'"), &bin);
        let pair = |pair: &str| {
            let mut names = pair.split(':').map(str::to_owned);
            (names.next().unwrap(), names.collect())
        };
        Self {
            programs: pairs.split_whitespace().map(pair).collect(),
            requested: log.split_whitespace().map(str::to_owned).collect(),
        }
    }

    fn not_requested(&self) -> Vec<String> {
        let missing = |(program, packages): (&String, &Vec<String>)| {
            let is_known = !packages.is_empty() && packages.iter().all(|package| self.requested.contains(package));
            (!is_known).then(|| format!("{program}: apt-get is asked for {:?}, wanted {packages:?}", self.requested))
        };
        self.programs.iter().filter_map(missing).collect()
    }
}

impl Makefile {
    fn read() -> Self {
        let text = fs::read_to_string(repository().join("Makefile")).unwrap().replace("\\\n", " ");
        let mut makefile = Self { recipes: BTreeMap::new(), macros: BTreeMap::new() };
        let (mut target, mut name) = (String::new(), None::<String>);
        for line in text.lines() {
            if let Some(defined) = line.strip_prefix("define ") {
                name = Some(defined.to_owned());
            } else if line == "endef" {
                name = None;
            } else if let Some(name) = &name {
                makefile.macros.entry(name.clone()).or_default().extend([line, "\n"]);
            } else if let Some(command) = line.strip_prefix('\t') {
                let recipe = makefile.recipes.entry(target.clone()).or_default();
                recipe.commands.extend([command.trim_start_matches(['@', '-']), "\n"]);
            } else if let Some((left, right)) = line.split_once(':').filter(|(left, _)| is_target(left)) {
                left.clone_into(&mut target);
                let recipe = makefile.recipes.entry(target.clone()).or_default();
                let (prerequisites, help) =
                    right.split_once("##").map_or((right, None), |(left, help)| (left, Some(help)));
                recipe.prerequisites.push_str(prerequisites);
                recipe.is_documented |= help.is_some();
            } else if let Some((left, value)) = line.split_once(" = ") {
                makefile.macros.insert(left.to_owned(), value.to_owned());
            }
        }
        makefile
    }

    /// The commands of a target, of all targets that it needs, of the macros in them, and of the scripts that they run.
    fn closure(&self, target: &str) -> String {
        let (mut text, mut seen, mut todo) = (String::new(), BTreeSet::new(), vec![target.to_owned()]);
        while let Some(name) = todo.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let found = if let Some(recipe) = self.recipes.get(&name) {
                todo.extend(words(&recipe.prerequisites).filter(|word| self.recipes.contains_key(word)));
                recipe.commands.clone()
            } else if let Some(body) = self.macros.get(&name).filter(|_| name != "INSTALL") {
                body.clone()
            } else {
                script(&name)
            };
            for part in found.split("$(MAKE) ").skip(1) {
                todo.extend(words(part).take(1));
            }
            let is_macro = |word: &String| self.macros.contains_key(word);
            todo.extend(words(&found.replace("$(", " ").replace("call ", " ").replace(',', " ")).filter(is_macro));
            todo.extend(
                found.split([' ', '"', '\t', '\n', ',', '(']).filter(|word| word.contains('/')).map(str::to_owned),
            );
            text.push_str(&found);
            text.push('\n');
        }
        text
    }
}

fn is_target(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// A script of this repository, after a line that starts its interpreter; nothing if there is no such file. A word such as `/dev/stdout` names
/// none: to read it would wait for ever.
fn script(name: &str) -> String {
    let path = repository().join(name.trim_start_matches('/'));
    let Ok(text) = fs::read_to_string(&path) else { return String::new() };
    let interpreter = text.lines().next().and_then(|line| line.strip_prefix("#!")).unwrap_or_default();
    let interpreter = interpreter.trim_start_matches("/usr/bin/env ").rsplit('/').next().unwrap_or_default();
    match interpreter {
        "sh" | "bash" => text.replace("\\\n", " "),
        other => format!("{other}\n"),
    }
}

/// The arguments of each call of a macro.
fn calls(text: &str, name: &str) -> Vec<String> {
    let start = format!("$(call {name},");
    let argument = |rest: &str| {
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        rest[..end.unwrap_or(rest.len())].to_owned()
    };
    text.split(&start).skip(1).map(argument).collect()
}

/// Runs a rule named `probe` after the Makefile was read, with this `PATH`; returns what it prints.
fn make(rule: &str, path: &Path) -> String {
    let mut make = Command::new("make");
    make.current_dir(repository()).args(["--silent", "--eval", rule, &format!("PATH={}", path.display()), "probe"]);
    let output = make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The words that commands of a shell begin with, and what [`CALLS`] adds to them.
fn programs(text: &str) -> BTreeSet<String> {
    let first = |command: &str| {
        let mut words = command.split_whitespace().skip_while(|word| KEYWORDS.contains(word) || word.contains('='));
        words.next().map(str::to_owned)
    };
    let mut found: BTreeSet<_> = text.split(['\n', ';', '|', '&', '(', ')', '`', '"']).filter_map(first).collect();
    let indirect =
        CALLS.iter().filter(|(cause, _)| found.contains(*cause) || (cause.len() > 5 && text.contains(cause)));
    let indirect: Vec<_> = indirect.map(|(_, program)| (*program).to_owned()).collect();
    found.extend(indirect);
    found
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    text.split(move |c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_owned)
}
