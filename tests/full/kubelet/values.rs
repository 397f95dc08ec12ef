//! [`check_value`] against real flags: each kind of value on a flag of its kind, and each flag with what its kind
//! refuses.

use anyhow::{Result, bail, ensure};
use kubelet_config::kubelet::flags::{
    FlagSpec, ValueKind, check_value, go_quote,
    table::{FLAGS, find},
};

use super::{
    Answer, Kubelet,
    samples::{KINDS, Kind},
    seed,
};

/// cAdvisor's flags are of Go's own `flag` package, which says only this.
fn is_gos_own(spec: &FlagSpec, reason: &str) -> bool {
    let cadvisor = spec.removed.is_some_and(|minor| minor.0 == 37) || spec.name == "housekeeping-interval";
    cadvisor && matches!(reason, "parse error" | "value out of range")
}

/// Of labels the kubelet also prints its regular expressions and examples; the first two words tell the complaint.
fn is_the_same_taint(spec: &FlagSpec, theirs: &str, ours: &str) -> bool {
    let front = |text: &str| -> Vec<String> { text.split(' ').take(2).map(str::to_owned).collect() };
    spec.value == ValueKind::Taints && front(theirs) == front(ours)
}

/// Whether the kubelet and [`check_value`] say the same, to the word.
fn agree(kubelet: &Kubelet, spec: &FlagSpec, value: &str) -> Result<()> {
    let ours = check_value(spec.value, value);
    let flag = match spec.shorthand {
        Some(letter) => format!("-{letter}, --{}", spec.name),
        None => format!("--{}", spec.name),
    };
    let front =
        format!("failed to parse kubelet flag: invalid argument {} for {} flag: ", go_quote(value), go_quote(&flag));
    match (kubelet.ask(&[format!("--{}={value}", spec.name)])?, ours) {
        (Answer::Takes, Ok(())) => Ok(()),
        (Answer::Takes, Err(reason)) => bail!("--{}={value}: the kubelet takes it, we say {reason}", spec.name),
        (Answer::Refuses(message), Ok(())) => bail!("--{}={value}: we take it, the kubelet says {message}", spec.name),
        (Answer::Refuses(message), Err(reason)) => {
            // Misspelt, and longer, up to 1.34.
            let message = message
                .replace("exptected", "expected")
                .replace("quantatity", "quantity")
                .replace("the quantity, expected quantity, got ", "the quantity: ");
            let theirs = message.strip_prefix(&front);
            let same = theirs.is_some_and(|theirs| {
                theirs == reason || is_gos_own(spec, theirs) || is_the_same_taint(spec, theirs, &reason)
            });
            ensure!(same, "--{}={value}:\nthe kubelet says {message}\nwe say {front}{reason}", spec.name);
            Ok(())
        }
    }
}

fn each(kubelet: &Kubelet, values: fn(&Kind) -> &'static [&'static str], fine: bool) -> Result<()> {
    let mut problems = Vec::new();
    for kind in KINDS {
        let spec = find(kind.0).expect("the sample's flag is in the table");
        for value in values(kind) {
            if check_value(spec.value, value).is_ok() != fine {
                problems.push(format!("--{}={value}: ours is {:?}", spec.name, check_value(spec.value, value)));
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
