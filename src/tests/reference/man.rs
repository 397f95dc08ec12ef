//! packaging/man: a page for each command, and nodevigil.toml(5).
//!
//! clap writes what it knows; exit status, files and examples are added here.

use std::collections::BTreeSet;
use std::fs;

use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::{generated, repository, settings};

const DIRECTORY: &str = "packaging/man";
const URL: &str = "https://github.com/nodevigil/nodevigil";
const FILES: [(&str, &str); 7] = [
    ("/etc/nodevigil/config.toml, /etc/nodevigil/config.d/*.toml", "The settings: nodevigil.toml(5)."),
    ("/etc/nodevigil/kubeconfig", "The agent's own credential for the API server, if it has one."),
    ("/run/nodevigil/status.json", "The state of the agent and its conditions."),
    ("/run/nodevigil/pause.json", "The pause, if there is one."),
    ("/var/lib/nodevigil/records", "The records of problems."),
    ("/var/lib/nodevigil/accepted-settings.toml", "The settings that the agent last accepted."),
    ("/usr/share/doc/nodevigil/operate.md", "What to do about each reason."),
];
/// By the command's name.
pub(super) const EXAMPLES: &[(&str, &str, &str)] = &[
    ("nodevigil", "systemctl enable --now nodevigil", "Start the agent, now and at each boot."),
    ("nodevigil-run", "nodevigil run --config /root/test.toml", "Run the agent in a terminal, with other settings."),
    ("nodevigil-check", "nodevigil check", "Check this host."),
    ("nodevigil-check", "nodevigil check --deny warning /mnt/image", "Check an image; warnings fail too."),
    ("nodevigil-check", "nodevigil check --fix | patch -p1 -d /", "Fix the errors that an edit can fix."),
    ("nodevigil-status", "nodevigil status KubeletHealthy", "Show one condition; its status is the exit status."),
    ("nodevigil-status", "nodevigil status --watch", "Redraw the table each second."),
    ("nodevigil-diagnose", "nodevigil diagnose", "Evaluate everything once, without the agent."),
    (
        "nodevigil-bootstrap",
        "nodevigil bootstrap --deadline 10m",
        "Wait until a new node is Ready, or say why it is not.",
    ),
    ("nodevigil-pause", "nodevigil pause 30m --reason 'new disk'", "Publish no problem for half an hour."),
    ("nodevigil-resume", "nodevigil resume", "End the pause."),
    ("nodevigil-config", "nodevigil config check", "Check the settings before a restart of the agent."),
    ("nodevigil-config-check", "nodevigil config check fleet.toml", "Check a file before you roll it out."),
    ("nodevigil-config-show", "nodevigil config show", "Show which file sets each setting."),
    (
        "nodevigil-config-import-npd",
        "nodevigil config import-npd *-monitor.json >/etc/nodevigil/config.d/50-checks.toml",
        "Convert configuration files of node-problem-detector to settings.",
    ),
    ("nodevigil-records", "nodevigil records", "List the records of problems, the newest first."),
    ("nodevigil-records-show", "nodevigil records show", "Show the newest record."),
    ("nodevigil-explain", "nodevigil explain KubeletHung", "Explain a reason, and what to do."),
    ("nodevigil-explain", "nodevigil explain SD", "List a family of rules."),
    (
        "nodevigil-completions",
        "nodevigil completions bash >/etc/bash_completion.d/nodevigil",
        "Complete commands in bash.",
    ),
    (
        "nodevigil-cleanup",
        "systemctl disable --now nodevigil && nodevigil cleanup",
        "Remove everything of nodevigil from the Node.",
    ),
];

/// The names and texts of the pages of a command and of its subcommands.
fn pages(mut command: Command) -> Vec<(String, String)> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut pages: Vec<_> = shown.flat_map(pages).collect();
    let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    if let Some((description, _)) = about.split_once("Exit code:") {
        command = command.long_about(description.trim_end().to_owned());
    }
    let source = concat!("nodevigil ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.after_help(Resettable::Reset)).manual("nodevigil").source(source);
    let name = man.get_filename();
    let mut page = Vec::new();
    man.render(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap() + &further(name.trim_end_matches(".1"), &about).render();
    pages.push((name, page));
    pages
}

/// The sections that clap does not write.
fn further(name: &str, about: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit_codes(about) {
        item(&mut roff, bold(code), &meaning);
    }
    item(&mut roff, bold("64"), "The command line is wrong.");
    roff.control("SH", ["FILES"]);
    for (path, meaning) in FILES {
        item(&mut roff, italic(path), meaning);
    }
    roff.control("SH", ["EXAMPLES"]);
    for (_, example, meaning) in EXAMPLES.iter().filter(|(of, _, _)| *of == name) {
        item(&mut roff, bold(*example), meaning);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("nodevigil"), roman("(1), "), bold("nodevigil.toml"), roman(format!("(5), {URL}"))]);
    roff
}

fn item(roff: &mut Roff, term: Inline, meaning: &str) {
    roff.control("TP", []);
    roff.text([term]);
    roff.text([roman(meaning)]);
}

/// The codes of a help text (`Exit code: 0 the node is ready, 1 ...`), each with its meaning.
fn exit_codes(about: &str) -> Vec<(String, String)> {
    let (mut codes, mut is_start) = (Vec::<(String, String)>::new(), true);
    for word in about.split("Exit code:").nth(1).unwrap_or_default().split_whitespace() {
        if is_start && word.parse::<u8>().is_ok() {
            codes.push((word.to_owned(), String::new()));
        } else if let Some((_, meaning)) = codes.last_mut() {
            meaning.extend([word, " "]);
        }
        is_start = word.ends_with([',', ';']);
    }
    let sentence = |meaning: String| {
        let meaning = meaning.trim_end_matches([' ', ',', ';', '.']);
        let (first, rest) = meaning.split_at_checked(1).unwrap_or_default();
        format!("{}{rest}.", first.to_uppercase())
    };
    codes.into_iter().map(|(code, meaning)| (code, sentence(meaning))).collect()
}

/// nodevigil.toml(5).
fn page_of_settings() -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["nodevigil.toml", "5", "", concat!("nodevigil ", env!("CARGO_PKG_VERSION")), "nodevigil"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("nodevigil.toml - settings of nodevigil")]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([italic("/etc/nodevigil/config.toml")]);
    roff.control("PP", []);
    roff.text([italic("/etc/nodevigil/config.d/*.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "The files are TOML. The agent reads config.toml, then the files of config.d in the order of their names. A later file overrides an earlier \
         one, setting by setting. Files in the same places below /run/nodevigil and /usr/lib/nodevigil count too; of several with the same name, only \
         the one in /etc, otherwise the one in /run. No setting is required. Restart the agent after a change. nodevigil config check reports errors \
         with file and line.",
    )]);
    roff.control("SH", ["SETTINGS"]);
    let mut meaning = String::new();
    for line in settings::text().lines().skip_while(|line| !line.starts_with("#[")) {
        if let Some(comment) = line.strip_prefix("# ") {
            meaning.extend([comment, " "]);
        } else if line.starts_with("#[") {
            roff.control("SS", [line.trim_start_matches('#')]);
        } else if let Some(setting) = line.strip_prefix('#') {
            let text = std::mem::take(&mut meaning).replace("; for example:", ". The value shown is an example.");
            item(&mut roff, bold(setting), text.trim_end());
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("nodevigil"), roman("(1), "), bold("nodevigil-config"), roman(format!("(1), {URL}"))]);
    roff.render()
}

#[test]
fn man_pages() {
    let mut command = crate::cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = pages(command);
    for (name, page) in &pages {
        assert!(page.contains(".SH EXAMPLES\n.TP"), "{name} has no example");
        assert!(page.contains(".SH \"EXIT STATUS\"\n") && !page.contains("Exit code:"), "{name}: {page}");
    }
    pages.push(("nodevigil.toml.5".to_owned(), page_of_settings()));
    for (name, page) in &pages {
        generated(&format!("{DIRECTORY}/{name}"), page);
    }
    let found = fs::read_dir(repository().join(DIRECTORY)).unwrap();
    let found: BTreeSet<_> = found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, pages.into_iter().map(|(name, _)| name).collect(), "{DIRECTORY} has a page of no command");
}

#[test]
fn a_number_within_a_meaning_is_no_exit_code() {
    let codes = exit_codes("Exit code: 0 fine, 1 at least 2 are wrong, or 3; 78 the settings are invalid.");
    let codes: Vec<_> = codes.iter().map(|(code, meaning)| format!("{code}: {meaning}")).collect();
    assert_eq!(codes, ["0: Fine.", "1: At least 2 are wrong, or 3.", "78: The settings are invalid."]);
}
