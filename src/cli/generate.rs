//! `nodevigil generate`: documents that are made from the registries, so that they cannot differ from the program.

use std::{fmt::Write as _, io, process::ExitCode};

use clap::ValueEnum;

use super::{conditions::conditions_md, metrics::metrics_md, status::print};
use crate::{
    config::KEYS,
    rules::{self, Rule},
};

/// Print a document that is made from the program's registries.
#[derive(Debug, Clone, clap::Args)]
pub struct Generate {
    /// Which
    #[arg(value_name = "WHAT")]
    what: What,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// docs/reference/rules.md
    Docs,
    /// docs/reference/conditions.md
    Conditions,
    /// docs/reference/metrics.md
    Metrics,
    /// packaging/config.d/00-defaults.toml
    Config,
}

impl Generate {
    /// Prints it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let text = match self.what {
            What::Docs => rules_md(),
            What::Conditions => conditions_md(),
            What::Metrics => metrics_md(),
            What::Config => config_toml(),
        };
        print(&mut io::stdout().lock(), &text)?;
        Ok(ExitCode::SUCCESS)
    }
}

const FAMILIES: &[(&str, &str)] = &[
    ("SD", "systemd: the unit, its drop-ins, its environment"),
    ("FL", "flags"),
    ("CF", "the kubelet's configuration files"),
    ("CL", "cloud provider, name, labels"),
    ("CP", "the control plane"),
    ("AU", "credentials and access"),
    ("KN", "the kernel"),
    ("NW", "the network"),
    ("RS", "resources"),
    ("RT", "the container runtime"),
];

/// `docs/reference/rules.md`.
pub fn rules_md() -> String {
    let mut text = String::from(
        "# Rules\n\n\
         Made by `nodevigil generate docs`; do not edit. `nodevigil explain ID` prints one of them.\n\n\
         Severities: **fatal** the kubelet will exit, or systemd cannot start it; **error** it runs, but the node will not become \
         useful or will\nbe deleted; **warning** works now, breaks later or under load; **info** worth a line.\n\n\
         A comment above the line allows a finding there, with a reason: \
         `# nodevigil: allow FL003: kubeadm rewrites this at the next upgrade`.\nAt the top of a file it allows findings about the \
         file as a whole.\n",
    );
    let mut rules: Vec<&Rule> = rules::all().collect();
    rules.sort_by_key(|rule| rule.id);
    let mut last = "";
    for rule in rules {
        let family = rule.id.get(..2).unwrap_or(rule.id);
        if family != last {
            let what = FAMILIES
                .iter()
                .find(|(id, _)| *id == family)
                .map_or("", |(_, what)| what);
            let _ = write!(text, "\n## {family}: {what}\n");
            last = family;
        }
        let Rule {
            id,
            name,
            severity,
            doc,
            source,
            fix,
            ..
        } = rule;
        let _ = write!(
            text,
            "\n### {id} {name}\n\n*{severity}*\n\n{doc}\n\nFix: {fix}\n\nSeen: {source}\n"
        );
    }
    text
}

/// `packaging/config.d/00-defaults.toml`: every key with its default, commented out.
pub fn config_toml() -> String {
    let mut text = String::from(
        "# Every key of nodevigil's configuration, commented out.\n\
         # Made by `nodevigil generate config`; do not edit. Copy what you need into a file of your own:\n\
         # /etc/nodevigil/config.d/50-local.toml\n",
    );
    let mut last = "";
    for key in KEYS {
        if key.section != last {
            last = key.section;
            let name = last
                .replace("TYPE", "KubeletHealthy")
                .replace("REASON", "KubeletCrashed");
            let of_each = if name == last {
                ""
            } else {
                " # and so for each other"
            };
            let _ = write!(text, "\n#[{name}]{of_each}\n");
        }
        let _ = write!(text, "\n# {}\n# Takes {}.\n", key.doc, key.bounds);
        let _ = match key.default {
            Some(default) => writeln!(text, "#{} = {default}", key.name),
            None => writeln!(
                text,
                "# No default; an example:\n#{} = {}",
                key.name, key.example
            ),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_commented_configuration_and_it_can_be_uncommented() {
        let text = config_toml();
        assert!(
            text.lines()
                .all(|line| line.is_empty() || line.starts_with('#'))
        );
        let is_key = |line: &&str| !line.starts_with("# ");
        let uncommented = text.lines().filter(is_key);
        let uncommented: Vec<&str> = uncommented
            .map(|line| line.trim_start_matches('#'))
            .collect();
        let uncommented = uncommented.join("\n");
        let folder = tempfile::tempdir().unwrap();
        let root = crate::host::files::Root::new(folder.path());
        root.write_atomically("/all.toml", uncommented.as_bytes())
            .unwrap();
        crate::config::load(&root, &["/all.toml".into()]).unwrap();
        for key in KEYS {
            assert!(uncommented.contains(&format!("\n{} = ", key.name)));
        }
    }

    #[test]
    fn every_rule_is_in_the_document_and_in_a_known_family() {
        let text = rules_md();
        for rule in rules::all() {
            assert!(text.contains(&format!("### {} {}\n", rule.id, rule.name)));
            assert!(
                FAMILIES.iter().any(|(id, _)| rule.id.starts_with(id)),
                "{}",
                rule.id
            );
        }
    }
}
