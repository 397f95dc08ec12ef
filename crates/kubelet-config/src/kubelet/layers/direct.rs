//! Where in a unit's argument list the kubelet begins: after wrappers, in a distribution's program, or nowhere.

use super::Launcher;
use crate::kubelet::location::Located;
use crate::kubelet::systemd::{Arg, Unit};
use crate::kubelet::text::shortened;
use crate::kubelet::tree::Tree;

/// What an argument list starts.
pub(super) struct Start<'a> {
    pub(super) launcher: Launcher,
    /// The words from the program on; none if the unit has no usable command, or runs the wrapper of a snap.
    pub(super) words: &'a [Arg],
}

/// The kubelet's words do not show, and why: at the word that hides them.
type Hidden = Located<String>;

/// Shells: what they start is in their script.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "fish"];

/// Options of usual wrappers whose value is a word of its own and may well be `kubelet`: systemd-inhibit(1),
/// systemd-run(1), logger(1), ip-netns(8), and the container runtimes' `--name`.
const OPTIONS_WITH_VALUE: [&str; 12] =
    ["--who", "--why", "--what", "--mode", "--tag", "-t", "--unit", "-u", "--slice", "--name", "--hostname", "exec"];

pub(super) fn find<'a>(tree: &dyn Tree, unit: &'a Unit) -> Result<Start<'a>, Hidden> {
    let words = unit.argv.as_slice();
    let Some(first) = words.first() else { return Ok(Start { launcher: Launcher::Direct, words }) };
    let hidden = |value: String| Err(Located { value, at: first.at().clone() });
    // With the prefix `@` the first word is only a name.
    let program = unit.exec.as_ref().map_or(&first.text, |exec| &exec.program);
    let script = script(tree, program);
    if is_kubelet(base_name(program)) {
        return match script {
            Some((line, true)) => hidden(format!("{program} is a script ({line}) that starts the kubelet")),
            _ => Ok(Start { launcher: Launcher::Direct, words }),
        };
    }
    let found = distribution(words, base_name(program)).map(Ok).or_else(|| scan(words));
    found.unwrap_or_else(|| match script {
        Some((line, _)) => hidden(format!("{program} is a script ({line})")),
        None => hidden(format!("{program} is not known, and no word after it names a kubelet")),
    })
}

fn scan(words: &[Arg]) -> Option<Result<Start<'_>, Hidden>> {
    let mut before: Option<&str> = None;
    for (index, word) in words.iter().enumerate() {
        let text = word.text.as_str();
        let is_value = before.is_some_and(|before| OPTIONS_WITH_VALUE.contains(&before));
        before = Some(text);
        if is_value || !may_be_a_program(text) {
            continue;
        }
        let name = base_name(text);
        if is_kubelet(name) {
            return Some(Ok(Start { launcher: Launcher::Direct, words: &words[index..] }));
        }
        if SHELLS.contains(&name) && takes_a_command(&words[index + 1..]) {
            let value = format!("{text} is a shell, and the kubelet's arguments are in its command");
            return Some(Err(Located { value, at: word.at().clone() }));
        }
        if let Some(start) = distribution(&words[index..], name) {
            return Some(Ok(start));
        }
    }
    None
}

/// A distribution's program: k3s, RKE2, kubelite, `snap run …`.
fn distribution<'a>(words: &'a [Arg], name: &str) -> Option<Start<'a>> {
    let mut texts = words.iter().skip(1).map(|word| word.text.as_str());
    let has = |wanted: [&str; 2]| texts.clone().any(|text| wanted.contains(&text));
    let launcher = match name {
        "k3s" if has(["agent", "server"]) => Launcher::K3s,
        "rke2" if has(["agent", "server"]) => Launcher::Rke2,
        "k0s" if has(["worker", "controller"]) => Launcher::K0s,
        "kubelite" => Launcher::MicroK8s,
        "snap" => {
            texts.find(|text| *text == "run")?;
            return snap_app(texts.find(|text| !text.starts_with('-'))?);
        }
        _ => return None,
    };
    Some(Start { launcher, words })
}

fn snap_app<'a>(name: &str) -> Option<Start<'a>> {
    let launcher = match name {
        "microk8s.daemon-kubelite" => Launcher::MicroK8s,
        "k8s.kubelet" => Launcher::K8sSnap,
        _ => return None,
    };
    Some(Start { launcher, words: &[] })
}

/// The first line of a script, and whether it hands its arguments on, perhaps with others.
fn script(tree: &dyn Tree, program: &str) -> Option<(String, bool)> {
    // A binary is larger than what is read here, which is as good as no script: a script of that size is none.
    let text = tree.read(program.as_ref()).ok()?;
    let line = text.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let hands_on = text.windows(2).any(|pair| pair == b"$@" || pair == b"$*");
    Some((shortened(&format!("#!{}", String::from_utf8_lossy(line).trim())), hands_on))
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
