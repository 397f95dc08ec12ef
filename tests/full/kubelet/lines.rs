//! Random argument lists: our reading foretells the kubelet's first complaint.

use anyhow::{Result, ensure};
use kubelet_config::kubelet::flags::parse::parse_argv;
use kubelet_config::kubelet::location::Location;
use kubelet_config::kubelet::version::Minor;

use super::{Answer, Kubelet, seed};

/// Words of which lists are made: flags of every form, values, and what people write by mistake.
const WORDS: &[&str] = &[
    "--v=2",
    "--v",
    "-v",
    "-v2",
    "-v=3",
    "-v=",
    "-vx",
    "-vh",
    "2",
    "--node-ip",
    "--node-ip=10.0.0.7",
    "--node_ip=1",
    "10.0.0.7",
    "--fail-swap-on",
    "--fail-swap-on=false",
    "--fail_swap_on=maybe",
    "false",
    "--config",
    "/var/lib/kubelet/config.yaml",
    "--node-labels=a=b",
    "--node-labels",
    "a=b",
    "--max-pods=110",
    "--max-pods=x",
    "--max-pods",
    "110",
    "--cloud-provider=external",
    "-cloud-provider=external",
    "--cloud-provder=external",
    "---v=2",
    "--=x",
    "--",
    "-",
    "",
    "\\",
    "#",
    ">",
    "–v=2",
    "--pod-infra-container-image=x",
    "--network-plugin",
    "cni",
    "--version=raw",
    "--version=maybe",
    "--housekeeping_interval=1s",
    "--cluster-dns=\"a",
    "=",
    "--eviction-hard=memory.available=1",
    "--containerd=x",
    "--no-such-flag",
    "-=",
    "-é",
];

/// The first complaint that follows from our reading; of a wrong value its beginning.
fn foretold(argv: &[&str], minor: Minor) -> Option<String> {
    let line = parse_argv(argv, &Location::file("argv"));
    let parse = "failed to parse kubelet flag: ";
    for used in line.uses.iter().chain(&line.lacks_value) {
        let lacks = line.lacks_value.as_ref().is_some_and(|last| std::ptr::eq(last, used));
        let letters = used.written.len() == 2 && !used.written.starts_with("--");
        let Some(spec) = used.spec.filter(|spec| spec.known_in(minor)) else {
            let bare = used.written.trim_start_matches('-');
            if used.name.starts_with("--") {
                return Some(format!("{parse}bad flag syntax: {}", used.name));
            }
            if used.name.starts_with('-') {
                // The rest of the word, from the letter that is unknown; Go takes its first byte for the letter.
                let word = argv[1 + used.word];
                let rest = &word[word.find(bare).unwrap_or(1).max(1)..];
                let first = char::from(rest.bytes().next().unwrap_or(b'='));
                return Some(format!("{parse}unknown shorthand flag: '{first}' in -{rest}"));
            }
            return Some(format!("{parse}unknown flag: {}", used.written));
        };
        if lacks {
            return Some(if letters {
                let letter = used.written.trim_start_matches('-');
                format!("{parse}flag needs an argument: '{letter}' in {}", used.written)
            } else {
                format!("{parse}flag needs an argument: {}", used.written)
            });
        }
        if !spec.value.takes(&used.value) {
            return Some(format!("{parse}invalid argument "));
        }
    }
    // `%+s` of an empty word is nothing.
    line.strays.first().map(|stray| format!("unknown command {}", stray.text))
}

/// Random lists, asked.
pub(crate) fn random(kubelet: &Kubelet) -> Result<()> {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let count = if std::env::var_os("NODEVIGIL_KUBELETS").is_some() { 300 } else { 80 };
    let mut problems = Vec::new();
    for _ in 0..count {
        let words: Vec<&str> = (0..random.usize(0..6)).map(|_| WORDS[random.usize(..WORDS.len())]).collect();
        let argv: Vec<&str> = ["kubelet", "--version"].into_iter().chain(words.iter().copied()).collect();
        let ours = foretold(&argv, kubelet.version.minor);
        let theirs = match kubelet.ask(&words)? {
            Answer::Takes => None,
            Answer::Refuses(message) => Some(message),
        };
        // Only the kubelet knows why a value is wrong.
        let is_same = match (&ours, &theirs) {
            (Some(ours), Some(theirs)) if ours.ends_with("invalid argument ") => theirs.starts_with(ours),
            _ => ours == theirs,
        };
        if !is_same {
            problems.push(format!("{words:?}:\nexpected {ours:?}\nthe kubelet prints {theirs:?}"));
        }
    }
    ensure!(problems.is_empty(), "NODEVIGIL_SEED={seed}\n{}", problems.join("\n"));
    Ok(())
}
