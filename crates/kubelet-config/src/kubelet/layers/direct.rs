//! Where in a unit's argument list the kubelet begins: after wrappers that hand their words on, in a distribution's
//! program, or nowhere that can be seen.

use super::Launcher;
use crate::kubelet::location::Located;
use crate::kubelet::systemd::{Arg, Unit};
use crate::kubelet::text::shortened;
use crate::kubelet::tree::Tree;

/// What an argument list starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Nothing: the unit has no usable command.
    Nothing,
    /// A kubelet, whose words begin at this one.
    Kubelet(usize),
    /// k3s or RKE2, whose program is this word.
    Rancher { launcher: Launcher, first: usize },
    /// k0s, whose program is this word.
    K0s { first: usize },
    /// `MicroK8s`' kubelite, and where its own words begin if the unit starts it itself.
    MicroK8s { first: Option<usize> },
    /// Canonical's k8s snap.
    K8sSnap,
    /// Something that does not show the kubelet's words.
    Hidden(Located<String>),
}

/// Shells: what they start is in their script.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "fish"];

/// Options of usual wrappers whose value is a word of its own and may well be `kubelet`: systemd-inhibit(1),
/// systemd-run(1), logger(1), ip-netns(8), and the container runtimes' `--name`.
const OPTIONS_WITH_VALUE: [&str; 12] =
    ["--who", "--why", "--what", "--mode", "--tag", "-t", "--unit", "-u", "--slice", "--name", "--hostname", "exec"];

/// Finds what the unit starts.
pub(super) fn find(tree: &dyn Tree, unit: &Unit) -> Start {
    let Some(first) = unit.argv.first() else { return Start::Nothing };
    if let Some(start) = snap_of_unit(unit) {
        return start;
    }
    // With the prefix `@` the first word is only a name.
    let program = unit.exec.as_ref().map_or(&first.text, |exec| &exec.program);
    if is_kubelet(base_name(program)) {
        return match hands_on(tree, program) {
            Some(interpreter) => {
                let value = format!("{program} is a script ({interpreter}) that starts the kubelet");
                Start::Hidden(Located { value, at: first.at().clone() })
            }
            None => Start::Kubelet(0),
        };
    }
    distribution(unit, 0, base_name(program)).or_else(|| scan(unit)).unwrap_or_else(|| {
        let value = match interpreter(tree, program) {
            Some(interpreter) => format!("{program} is a script ({interpreter})"),
            None => format!("{program} is not known, and no word after it names a kubelet"),
        };
        Start::Hidden(Located { value, at: first.at().clone() })
    })
}

/// The first word that decides.
fn scan(unit: &Unit) -> Option<Start> {
    let mut before: Option<&str> = None;
    for (index, word) in unit.argv.iter().enumerate() {
        let text = word.text.as_str();
        let is_value = before.is_some_and(|before| OPTIONS_WITH_VALUE.contains(&before));
        before = Some(text);
        if is_value || !may_be_a_program(text) {
            continue;
        }
        let name = base_name(text);
        if is_kubelet(name) {
            return Some(Start::Kubelet(index));
        }
        if SHELLS.contains(&name) && takes_a_command(&unit.argv[index + 1..]) {
            let value = format!("{text} is a shell, and the kubelet's arguments are in its command");
            return Some(Start::Hidden(Located { value, at: word.at().clone() }));
        }
        if let Some(start) = distribution(unit, index, name) {
            return Some(start);
        }
    }
    None
}

/// A distribution's program: k3s, RKE2, kubelite, `snap run …`.
fn distribution(unit: &Unit, index: usize, name: &str) -> Option<Start> {
    let rest = unit.argv.get(index + 1..).unwrap_or_default();
    let has = |wanted: &[&str]| rest.iter().any(|word| wanted.contains(&word.text.as_str()));
    match name {
        "k3s" if has(&["agent", "server"]) => Some(Start::Rancher { launcher: Launcher::K3s, first: index }),
        "rke2" if has(&["agent", "server"]) => Some(Start::Rancher { launcher: Launcher::Rke2, first: index }),
        "k0s" if has(&["worker", "controller"]) => Some(Start::K0s { first: index }),
        "kubelite" => Some(Start::MicroK8s { first: Some(index + 1) }),
        "snap" => rest
            .iter()
            .skip_while(|word| word.text != "run")
            .skip(1)
            .find(|word| !word.text.starts_with('-'))
            .and_then(|word| snap_app(&word.text)),
        _ => None,
    }
}

/// The unit's name says which snap it is: snapd writes `snap.NAME.APP.service`.
fn snap_of_unit(unit: &Unit) -> Option<Start> {
    unit.names.iter().find_map(|name| snap_app(name.strip_prefix("snap.")?.strip_suffix(".service")?))
}

fn snap_app(name: &str) -> Option<Start> {
    match name {
        "microk8s.daemon-kubelite" => Some(Start::MicroK8s { first: None }),
        "k8s.kubelet" => Some(Start::K8sSnap),
        _ => None,
    }
}

/// The first line of a script that hands its arguments on, and may add others.
fn hands_on(tree: &dyn Tree, program: &str) -> Option<String> {
    /// A wrapper has a few lines.
    const MAX_BYTES: usize = 64 << 10;
    let text = tree.read_bounded(program.as_ref(), MAX_BYTES).ok()?;
    let is_wrapper = text.windows(2).any(|pair| pair == b"$@" || pair == b"$*");
    if is_wrapper { interpreter(tree, program) } else { None }
}

/// The first line of a script.
fn interpreter(tree: &dyn Tree, program: &str) -> Option<String> {
    // A binary is larger than what is read here, which is as good as no script: a script of that size is none.
    let text = tree.read_bounded(program.as_ref(), super::super::tree::MAX_FILE_BYTES).ok()?;
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(shortened(&format!("#!{}", String::from_utf8_lossy(line).trim())))
}

/// Whether a shell's words give it a command: `-c`, `-ec`, ….
fn takes_a_command(words: &[Arg]) -> bool {
    words
        .iter()
        .map(|word| word.text.as_str())
        .take_while(|text| text.starts_with('-') && *text != "--")
        .any(|text| !text.starts_with("--") && text.contains('c'))
}

/// No option, no assignment as `env` takes them, no command of a shell.
fn may_be_a_program(text: &str) -> bool {
    let name_ends = text.find('/').unwrap_or(text.len());
    !text.starts_with('-') && !text[..name_ends].contains('=') && !text.contains(char::is_whitespace)
}

/// `kubelet`, or the name of one of several releases: `kubelet-v1.31.2`, `kubelet.1.30`.
fn is_kubelet(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("kubelet") else { return false };
    let Some(rest) = rest.strip_prefix(['-', '_', '.']) else { return rest.is_empty() };
    rest.strip_prefix('v').unwrap_or(rest).starts_with(|c: char| c.is_ascii_digit())
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
