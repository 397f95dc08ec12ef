//! k0s: its worker starts the kubelet as a child, and takes the kubelet's flags from `--kubelet-extra-args`. It writes the
//! kubelet's configuration file at each start. Read in k0s's `pkg/config/cli.go` and `pkg/component/worker/kubelet.go` 1.33.

use serde_json::json;

use super::{KubeletCommand, Launcher, ReplacedList, UnknownOption};
use crate::kubelet::args;
use crate::kubelet::flags::table;
use crate::kubelet::systemd::Arg;
use crate::kubelet::text::chars;

/// The option that hands flags on to the kubelet.
const EXTRA_ARGS: &str = "--kubelet-extra-args";

/// The most flags of the kubelet among k0s's own that are kept.
const MAX_UNKNOWN: usize = 100;

/// Derives the kubelet's words. `words` are those of the unit after k0s's program.
pub(super) fn resolve_command(words: &[Arg]) -> KubeletCommand {
    let kubelet = KubeletCommand::new(Launcher::K0s);
    let Some(command) = words.iter().find(|word| matches!(word.text.as_str(), "worker" | "controller")) else {
        return kubelet;
    };
    let is_on = |switch: &str| {
        let mut given = words.iter().rev().filter_map(|word| word.text.strip_prefix(switch));
        given.find(|value| value.is_empty() || value.starts_with('=')).is_some_and(|value| value != "=false")
    };
    if command.text == "controller" && !is_on("--enable-worker") && !is_on("--single") {
        let reason = "a controller of k0s without --enable-worker runs no kubelet".to_owned();
        return kubelet.with_unknown(command.at().clone(), reason);
    }
    let data = args::values(words, &["--data-dir"]).pop().map_or("/var/lib/k0s".to_owned(), |value| value.text);
    let own = [
        "kubelet".to_owned(),
        format!("--root-dir={data}/kubelet"),
        format!("--kubeconfig={data}/kubelet.conf"),
        format!("--cert-dir={data}/kubelet/pki"),
    ];
    let cloud = is_on("--enable-cloud-provider").then(|| "--cloud-provider=external".to_owned());
    let own = own.into_iter().chain(cloud);
    let own = own.map(|text| Arg { built_in: true, ..Arg::new(text, command.at().clone()) });
    let labels = args::values(words, &["--labels"]).into_iter();
    let labels = labels.map(|word| Arg { text: format!("--node-labels={}", word.text), ..word });
    let mut given = args::values(words, &[EXTRA_ARGS]);
    let extra = given.pop();
    let flags = labels.chain(extra.iter().flat_map(split)).collect::<Vec<_>>();
    let replaced = given.iter().filter_map(|lost| replaced(lost, extra.as_ref()?, &flags)).collect();
    let args = own.chain(flags).collect();
    // The value of such an option may be a word of its own, and begins with two dashes, too.
    let takes_next = |word: &Arg| word.text.starts_with("--") && word.text.ends_with("-extra-args");
    let before = std::iter::once(None).chain(words.iter().map(Some));
    let options = words.iter().zip(before).filter(|(_, before)| !before.is_some_and(takes_next));
    let unknown_options = options.filter_map(|(word, _)| unknown(word)).take(MAX_UNKNOWN).collect();
    KubeletCommand { args, replaced, unknown_options, settings: settings(), ..kubelet }
}

/// A flag of the kubelet among k0s's own, which has none of that name.
fn unknown(word: &Arg) -> Option<UnknownOption> {
    const BOTH_HAVE: [&str; 5] = ["cluster-dns", "config", "feature-gates", "help", "version"];
    let (name, value) = word.text.strip_prefix("--")?.split_once('=').unwrap_or((&word.text[2..], ""));
    let at = word.at();
    table::find(name).filter(|_| !BOTH_HAVE.contains(&name)).map(|_| UnknownOption {
        key: name.to_owned(),
        at: at.clone(),
        has_comment: false,
        items: vec![(value.to_owned(), at.clone())],
        meant: None,
        is_given: false,
        is_fatal: true,
    })
}

/// The flags of a value, each at its place where that is known to the character.
fn split(value: &Arg) -> Vec<Arg> {
    let at = value.at();
    // The value ends where its word does.
    let start = (at.column + at.width).checked_sub(chars(&value.text)).filter(|_| at.width >= chars(&value.text));
    let words = value.text.split_whitespace().map(|flag| {
        let offset = flag.as_ptr() as usize - value.text.as_ptr() as usize;
        let before = value.text.get(..offset).map_or(0, chars);
        let at = start.map_or_else(|| at.clone(), |start| at.at(at.line, start + before, chars(flag)));
        Arg::new(flag, at)
    });
    words.collect()
}

/// An earlier `--kubelet-extra-args`, which the last one replaces.
fn replaced(lost: &Arg, by: &Arg, kept: &[Arg]) -> Option<ReplacedList> {
    let is_kept = |flag: &Arg| kept.iter().any(|kept| kept.text == flag.text);
    let lost_flags: Vec<_> = split(lost).into_iter().filter(|flag| !is_kept(flag)).collect();
    (!lost_flags.is_empty()).then(|| ReplacedList {
        key: "kubelet-extra-args".to_owned(),
        at: lost.at().clone(),
        lost: lost_flags.into_iter().map(|flag| (flag.text.clone(), flag.declared)).collect(),
        by: by.at().clone(),
        by_command_line: true,
    })
}

/// What it writes into the configuration file.
fn settings() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("authentication.anonymous.enabled", json!(false)),
        ("authentication.webhook.enabled", json!(true)),
        ("authorization.mode", json!("Webhook")),
        ("clusterDNS", json!(["10.96.0.10"])),
        ("containerRuntimeEndpoint", json!("unix:///run/k0s/containerd.sock")),
        ("failSwapOn", json!(false)),
        ("readOnlyPort", json!(0)),
        ("rotateCertificates", json!(true)),
        ("serverTLSBootstrap", json!(true)),
    ]
}
