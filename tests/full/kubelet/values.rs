//! [`ValueKind::takes`] against real flags: each kind of value on a flag of its kind, and each flag with what its kind
//! refuses.

use anyhow::{Result, bail, ensure};
use kubelet_config::kubelet::flags::table::{FLAGS, find};
use kubelet_config::kubelet::flags::{FlagSpec, ValueKind};

use super::samples::{KINDS, Kind};
use super::{Answer, Kubelet, seed};

/// Whether the kubelet takes what [`ValueKind::takes`] takes, and nothing else.
fn agree(kubelet: &Kubelet, spec: &FlagSpec, value: &str) -> Result<()> {
    match (kubelet.ask(&[format!("--{}={value}", spec.name)])?, spec.value.takes(value)) {
        (Answer::Takes, false) => bail!("--{}={value}: the kubelet takes it, and we do not", spec.name),
        (Answer::Refuses(message), true) => {
            bail!("--{}={value}: accepted here, refused by the kubelet: {message}", spec.name)
        }
        (Answer::Refuses(message), false) => {
            let is_about_the_value = message.starts_with("failed to parse kubelet flag: invalid argument ");
            ensure!(is_about_the_value, "--{}={value}: the kubelet prints {message}", spec.name);
            Ok(())
        }
        (Answer::Takes, true) => Ok(()),
    }
}

fn each(kubelet: &Kubelet, values: fn(&Kind) -> &'static [&'static str], fine: bool) -> Result<()> {
    let mut problems = Vec::new();
    for kind in KINDS {
        let spec = find(kind.0).expect("the sample's flag is in the table");
        for value in values(kind) {
            if spec.value.takes(value) != fine {
                problems.push(format!("--{}={value}: ours is {}", spec.name, !fine));
            }
            if let Err(error) = agree(kubelet, spec, value) {
                problems.push(format!("{error:#}"));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

pub(crate) fn good(kubelet: &Kubelet) -> Result<()> {
    each(kubelet, |kind| kind.1, true)
}

pub(crate) fn bad(kubelet: &Kubelet) -> Result<()> {
    each(kubelet, |kind| kind.2, false)
}

/// The samples of a kind.
fn samples(kind: ValueKind) -> Option<&'static (&'static str, &'static [&'static str], &'static [&'static str])> {
    // `int` of cAdvisor's is Go's own, and of 64 bits.
    KINDS.iter().find(|sample| find(sample.0).is_some_and(|spec| spec.value == kind))
}

/// Each flag with all that its kind takes, in one command, and with one value that its kind refuses.
pub(crate) fn every_flag(kubelet: &Kubelet) -> Result<()> {
    let known: Vec<&FlagSpec> = FLAGS
        .iter()
        .filter(|spec| spec.known_in(kubelet.version.minor) && !matches!(spec.name, "help" | "version"))
        .collect();
    let mut all = Vec::new();
    let mut problems = Vec::new();
    for spec in &known {
        let Some((_, good, bad)) = samples(spec.value) else {
            bail!("--{}: no samples of {:?}", spec.name, spec.value);
        };
        // Given twice, an empty value and another one: some flags panic (IPVar).
        all.extend(good.iter().filter(|value| !value.is_empty()).map(|value| format!("--{}={value}", spec.name)));
        if let Some(value) = bad.iter().find(|value| !value.is_empty()) {
            problems.extend(agree(kubelet, spec, value).err().map(|error| format!("{error:#}")));
        }
    }
    if let Answer::Refuses(message) = kubelet.ask(&all)? {
        problems.push(format!("all good values at once: {message}"));
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Random values, made of pieces of the samples.
pub(crate) fn random(kubelet: &Kubelet) -> Result<()> {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut problems = Vec::new();
    let count = if std::env::var_os("NODEVIGIL_KUBELETS").is_some() { 40 } else { 8 };
    for (name, good, bad) in KINDS {
        let spec = find(name).expect("the sample's flag is in the table");
        let letters: Vec<char> = good.iter().chain(*bad).flat_map(|value| value.chars()).collect();
        // `--version=false` would start the kubelet.
        if spec.value == ValueKind::Version {
            continue;
        }
        let whole_values: Vec<&str> = good.iter().chain(*bad).copied().collect();
        for _ in 0..count {
            let whole = random.choice(&whole_values).copied().unwrap_or_default();
            let mut value: Vec<char> = whole.chars().collect();
            for _ in 0..random.usize(0..3) {
                let index = random.usize(0..=value.len());
                match (random.choice(&letters), random.bool()) {
                    (Some(letter), true) => value.insert(index, *letter),
                    _ if index < value.len() => drop(value.remove(index)),
                    _ => {}
                }
            }
            let value: String = value.into_iter().collect();
            if let Err(error) = agree(kubelet, spec, &value) {
                problems.push(format!("{error:#}"));
            }
        }
    }
    ensure!(problems.is_empty(), "NODEVIGIL_SEED={seed}\n{}", problems.join("\n"));
    Ok(())
}
