//! Whole configurations, judged by real kubelets: `nodevigil check` must be fatal if and only if the kubelet exits, and of a kubelet that
//! starts each setting must be what the kubelet prints.
//!
//! The trees are those of `tests/hosts` and a sound one with each change of `answers.txt` and of `slips`, in the file, in a drop-in or as a flag. Each
//! kubelet of `KUBEBUILDER_ASSETS` and `NODEVIGIL_KUBELETS` gets the arguments that the resolver finds, in the tree as its root, in namespaces
//! of its own, with a real containerd. It exits with its reason, or reaches the point after which its configuration stops it no more.
//!
//! `ORACLE_SHARE=N` tries every Nth change, `ORACLE_ONLY=TEXT` the cases whose names contain it, `ORACLE_RELEASE=1.36` one kubelet.
//! `ORACLE_RECORD=FILE` writes what each release answered, in the form of `answers.txt`. `ORACLE_LOG=1` prints what a kubelet logs.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, fs, thread};

use anyhow::{Context as _, Result, ensure};
use kubelet_config::kubelet::version::Version;
use nodevigil_e2e::support::daemon::Daemon;
use nodevigil_e2e::support::namespaces::{self, Stage};
use nodevigil_e2e::support::{cgroups, say, wait_until};

mod cases;
mod compare;
mod kubelet;
mod slips;
mod tree;

use cases::Case;
use kubelet::Kubelet;

const CONTAINERD: &str = "version = 2\nroot = \"ROOT/lib\"\nstate = \"ROOT/run\"\n[grpc]\naddress = \"ROOT/containerd.sock\"\n\
                          [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n";

fn main() -> ExitCode {
    let done = match (kubelet::entering(), Stage::current()) {
        (Some(spec), _) => kubelet::enter(&spec).map(|never| match never {}),
        (None, Stage::Inside(run)) => inside(&run),
        (None, _) => namespaces::outside(),
    };
    done.unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn inside(run: &str) -> Result<ExitCode> {
    namespaces::inside(run)?;
    // The kubelets' control groups are below this one, and are removed with it.
    cgroups::join(&format!("{run}/kubelets"))?;
    let directory = namespaces::work().join("containerd");
    fs::create_dir_all(&directory)?;
    let config = directory.join("config.toml");
    fs::write(&config, CONTAINERD.replace("ROOT", &directory.to_string_lossy()))?;
    let arguments = ["--config".to_owned(), config.to_string_lossy().into_owned()];
    let containerd = Daemon::start(&directory, "containerd".as_ref(), &arguments)?;
    let socket = directory.join("containerd.sock");
    wait_until("containerd", std::time::Duration::from_mins(1), || Ok(socket.exists().then_some(())))
        .with_context(|| containerd.log())?;
    let wanted = env::var("ORACLE_RELEASE").ok();
    let mut kubelets = kubelet::all(&socket)?;
    kubelets.retain(|kubelet| wanted.as_ref().is_none_or(|wanted| *wanted == kubelet.version.minor.to_string()));
    ensure!(!kubelets.is_empty(), "no kubelet to ask: start this by `make oracle`");
    let cases = cases::all()?;
    let started = Instant::now();
    let mut answers: BTreeMap<String, Vec<(Version, char)>> = BTreeMap::new();
    let (mut differences, mut excepted, mut count) = (0, 0, 0);
    for kubelet in &kubelets {
        for (case, judged) in cases.iter().zip(ask(kubelet, &cases)) {
            let failed = |error| compare::Judged::not_compared(format!("{error:#}"));
            let judged = judged.unwrap_or_else(failed);
            count += 1;
            match judged.exception {
                Some(reason) => {
                    excepted += 1;
                    say(&format!("left out {} {}: {reason}", kubelet.version, case.name));
                }
                None => answers.entry(case.name.clone()).or_default().push((kubelet.version.clone(), judged.letter)),
            }
            for difference in judged.differences {
                differences += 1;
                say(&format!("DIFFERENT {} {}: {difference}", kubelet.version, case.name));
            }
        }
    }
    if let Ok(file) = env::var("ORACLE_RECORD") {
        let letters = |row: &[(Version, char)]| row.iter().map(|(_, letter)| *letter).collect::<String>();
        let lines: Vec<String> = answers.iter().map(|(name, row)| format!("{} {name}\n", letters(row))).collect();
        fs::write(&file, lines.concat()).with_context(|| file.clone())?;
    }
    say(&format!(
        "{count} configurations of {} kubelets in {} s: {differences} differences, {excepted} left out",
        kubelets.len(),
        started.elapsed().as_secs()
    ));
    Ok(if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks one kubelet about every case, as many at a time as there are processors.
fn ask(kubelet: &Kubelet, cases: &[Case]) -> Vec<Result<compare::Judged>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return };
            let judged = compare::judge(kubelet, case, index);
            if let Ok(mut done) = done.lock() {
                done.push((index, judged));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, judged)| judged).collect()
}
