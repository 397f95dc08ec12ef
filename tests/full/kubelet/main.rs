//! nodevigil's tables of flags and feature gates, its reading of an argument list and its rules for values, compared with real kubelets:
//! `kubelet … --version` parses every flag and exits without side effects.
//!
//! The kubelet of `KUBEBUILDER_ASSETS` is asked, and those of `NODEVIGIL_KUBELETS` (a directory with one `kubelet` a
//! subdirectory) where that is set: `make oracle` builds them. Random words are seeded by `NODEVIGIL_SEED`, which a failure
//! prints.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use kubelet_config::kubelet::version::Version;
use libtest_mimic::{Arguments, Failed, Trial};

mod gates;
mod help;
mod lines;
mod samples;
mod values;

/// A kubelet that can be asked.
#[derive(Clone)]
struct Kubelet {
    path: PathBuf,
    version: Version,
}

/// Its output.
enum Answer {
    /// It took all words and printed its version, or its help.
    Takes,
    /// It exited with this message.
    Refuses(String),
}

impl Kubelet {
    fn at(path: &Path) -> Result<Self> {
        let output = run(path, &["--version"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text
            .trim()
            .strip_prefix("Kubernetes ")
            .with_context(|| format!("{} --version prints {text:?}", path.display()))?;
        Ok(Self { path: path.to_owned(), version: version.parse()? })
    }

    /// Whether it takes these words; `--version` is put before them, so that it does not start.
    fn ask<S: AsRef<str>>(&self, words: &[S]) -> Result<Answer> {
        let mut arguments = vec!["--version"];
        arguments.extend(words.iter().map(AsRef::as_ref));
        let output = run(&self.path, &arguments)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Ok(Answer::Takes),
            Some(1) => message(&errors)
                .map(Answer::Refuses)
                .with_context(|| format!("{arguments:?}: no message in {errors:?}")),
            other => bail!("{arguments:?}: exit {other:?}: {errors}"),
        }
    }
}

fn run(path: &Path, arguments: &[&str]) -> Result<std::process::Output> {
    Command::new(path).args(arguments).env_clear().output().with_context(|| format!("starting {}", path.display()))
}

/// The message in klog's `err="…"`, Go's quoting undone.
fn message(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("\"command failed\" err=\""))?;
    let quoted = line.split_once(" err=\"")?.1.strip_suffix('"')?;
    let mut text = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next()? {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'x' => text.push(code(&mut letters, 2)?),
            'u' => text.push(code(&mut letters, 4)?),
            other => text.push(other),
        }
    }
    Some(text)
}

/// The character of an escape's hexadecimal digits.
fn code(letters: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let hexadecimal: String = letters.take(digits).collect();
    char::from_u32(u32::from_str_radix(&hexadecimal, 16).ok()?)
}

/// The seed of the random words.
fn seed() -> u64 {
    let given = env::var("NODEVIGIL_SEED").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..))
}

/// The kubelets to ask.
fn kubelets() -> Result<Vec<Kubelet>> {
    let mut paths = Vec::new();
    if let Some(directory) = env::var_os("KUBEBUILDER_ASSETS") {
        paths.push(PathBuf::from(directory).join("kubelet"));
    }
    if let Some(directory) = env::var_os("NODEVIGIL_KUBELETS") {
        let before = paths.len();
        for entry in fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))? {
            paths.push(entry?.path().join("kubelet"));
        }
        ensure!(paths.len() > before, "NODEVIGIL_KUBELETS={} is empty", directory.display());
    }
    ensure!(!paths.is_empty(), "KUBEBUILDER_ASSETS is not set: start this by `make oracle`");
    paths.sort();
    paths.iter().map(|path| Kubelet::at(path)).collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = match kubelets() {
        Ok(kubelets) => kubelets.iter().flat_map(tests).collect(),
        Err(error) => {
            let text = format!("{error:#}");
            vec![Trial::test("kubelet", move || Err(Failed::from(text)))]
        }
    };
    libtest_mimic::run(&arguments, tests).exit_code()
}

type Question = fn(&Kubelet) -> Result<()>;

/// Everything that one kubelet is asked.
fn tests(kubelet: &Kubelet) -> Vec<Trial> {
    let all: [(&str, Question); 8] = [
        ("its help and the table name the same flags", help::same_flags),
        ("the flags that it lacks are unknown", help::lacking_flags),
        ("good values are taken", values::good),
        ("bad values are refused", values::bad),
        ("random values", values::random),
        ("every flag refuses what its kind refuses", values::every_flag),
        ("random argument lists", lines::random),
        ("feature gates", gates::agree),
    ];
    all.into_iter()
        .map(|(name, test)| {
            let kubelet = kubelet.clone();
            let name = format!("{}: {name}", kubelet.version);
            Trial::test(name, move || test(&kubelet).map_err(|error| format!("{error:#}").into()))
        })
        .collect()
}
