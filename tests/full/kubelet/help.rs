//! `kubelet --help` against the table.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kubelet_config::kubelet::flags::table::{FLAGS, find_short};
use kubelet_config::kubelet::flags::{FlagSpec, ValueKind};

use super::{Answer, Kubelet, run};

/// A flag as `--help` has it.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    shorthand: Option<char>,
    /// The type that pflag prints; a bool has none.
    kind: String,
    deprecated: bool,
}

/// What pflag prints for a kind of value. It does not distinguish 32 bits from 64 (`int32` and `int` do), nor maps from labels
/// and thresholds: those are distinguished by their values (`values.rs`).
fn printed(spec: &FlagSpec) -> &'static str {
    match spec.value {
        // A word in backquotes in the usage text is taken for the type.
        ValueKind::Bool if spec.name == "seccomp-default" => "RuntimeDefault",
        ValueKind::Bool => "",
        ValueKind::Version => "version[=true]",
        ValueKind::String => "string",
        ValueKind::Int32 => "int32",
        ValueKind::Int => "int",
        ValueKind::Uint => "Level",
        ValueKind::Duration => "duration",
        ValueKind::Ip => "ip",
        ValueKind::Quantity => "quantity",
        ValueKind::Strings => "strings",
        ValueKind::Map | ValueKind::OnePair | ValueKind::Labels | ValueKind::Thresholds => "mapStringString",
        ValueKind::Headers => "colonSeparatedMultimapStringString",
        ValueKind::Gates => "mapStringBool",
        ValueKind::Taints => "[]v1.Taint",
        ValueKind::ReservedMemory => "reserved-memory",
        ValueKind::VModule => "pattern=N,...",
    }
}

fn help(kubelet: &Kubelet) -> Result<BTreeMap<String, Line>> {
    let output = run(&kubelet.path, &["--help"])?;
    ensure!(output.status.success(), "--help: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let mut flags = BTreeMap::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (shorthand, rest) = match words.as_slice() {
            [short, rest @ ..] if short.len() == 3 && short.starts_with('-') && short.ends_with(',') => {
                (short.chars().nth(1), rest)
            }
            rest => (None, rest),
        };
        // Flags stand at the left; their text further right.
        if !line.starts_with("      --") && shorthand.is_none() {
            if let Some(line_of) = last.as_ref().and_then(|name| flags.get_mut(name)) {
                let line_of: &mut Line = line_of;
                line_of.deprecated |= line.contains("DEPRECATED:") || line.contains("(DEPRECATED");
            }
            continue;
        }
        let name = rest.first().and_then(|word| word.strip_prefix("--")).context("a flag has a name")?;
        let behind = line.split_once(&format!("--{name}")).map_or("", |(_, behind)| behind);
        // The type follows after one blank, the text after several.
        let kind = match behind.strip_prefix(' ') {
            Some(typed) if !typed.starts_with(' ') => typed.split(' ').next().unwrap_or_default(),
            _ => "",
        };
        flags.insert(
            (*name).to_owned(),
            Line { shorthand, kind: kind.to_owned(), deprecated: line.contains("DEPRECATED:") },
        );
        last = Some((*name).to_owned());
    }
    Ok(flags)
}

pub(crate) fn same_flags(kubelet: &Kubelet) -> Result<()> {
    let helped = help(kubelet)?;
    ensure!(helped.len() > 100, "--help names {} flags", helped.len());
    let known = FLAGS.iter().filter(|spec| spec.known_in(kubelet.version.minor));
    let table: BTreeMap<String, Line> = known
        .map(|spec| {
            let shorthand =
                ['v', 'h'].into_iter().find(|letter| find_short(*letter).is_some_and(|of| of.name == spec.name));
            let line = Line { shorthand, kind: printed(spec).to_owned(), deprecated: spec.deprecated };
            (spec.name.to_owned(), line)
        })
        .collect();
    let mut differences = Vec::new();
    for name in helped.keys().chain(table.keys().filter(|name| !helped.contains_key(*name))) {
        let (help, ours) = (helped.get(name), table.get(name));
        if help != ours {
            differences.push(format!("--{name}: the kubelet has {help:?}, the table {ours:?}"));
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

pub(crate) fn lacking_flags(kubelet: &Kubelet) -> Result<()> {
    let mut asked = 0;
    for spec in FLAGS.iter().filter(|spec| !spec.known_in(kubelet.version.minor)) {
        let Answer::Refuses(message) = kubelet.ask(&[format!("--{}=1", spec.name)])? else {
            anyhow::bail!("--{} is accepted, but not according to the table", spec.name);
        };
        let expected = format!("failed to parse kubelet flag: unknown flag: --{}", spec.name);
        ensure!(message == expected, "{message}");
        asked += 1;
    }
    ensure!(asked > 30, "the table has {asked} flags that this kubelet lacks");
    Ok(())
}
