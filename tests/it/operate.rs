//! docs/operate.md knows every reason that is no health, and no other; and no document of ours points to nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use nodevigil::cli::conditions::conditions_md;
use nodevigil::desired::taints::Rules;
use nodevigil::health::ConditionType;

/// What people read: the documents at the top, in docs/, and beside what they are about.
const FOLDERS: &[&str] = &[
    "",
    "docs",
    "docs/reference",
    "packaging/kubernetes",
    "packaging/monitoring",
    "cloud-init",
    "tests/memory-traces",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn operate() -> String {
    fs::read_to_string(root().join("docs/operate.md")).unwrap()
}

/// Path below the repository, text.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root().join(folder)).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|kind| kind == "md") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    found
}

/// Reason and severity of every row of docs/reference/conditions.md.
fn registry() -> Vec<(String, String)> {
    let document = conditions_md();
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[3].to_owned())
    })
    .collect()
}

/// The words between backticks, without the blocks of commands.
fn quoted(text: &str) -> Vec<String> {
    let mut inside = false;
    let prose: Vec<&str> = text
        .lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .collect();
    let prose = prose.join("\n");
    let words = prose.split('`').skip(1).step_by(2);
    words.map(|word| word.replace('\n', " ")).collect()
}

#[test]
fn each_reason_that_is_no_health_is_found_by_its_name() {
    let text = operate();
    let named: BTreeSet<String> = quoted(&text).into_iter().collect();
    let reasons = registry();
    let bad: Vec<_> = reasons
        .iter()
        .filter(|(_, severity)| severity != "healthy" && severity != "aside")
        .collect();
    assert!(bad.len() > 100, "{} reasons", bad.len());
    let missing: Vec<_> = bad
        .iter()
        .filter(|(name, _)| !named.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/operate.md does not name {missing:?}"
    );
}

/// `make docs` writes it.
#[test]
fn the_maintenance_table_is_made_from_the_registry() {
    let text = operate();
    let (before, rest) = text.split_once("<!-- maintenance: ").unwrap();
    let (begin, rest) = rest.split_once(" -->\n").unwrap();
    let (table, after) = rest.split_once("<!-- /maintenance -->").unwrap();
    let made = nodevigil::cluster::api::maintenance_table();
    if std::env::var_os("NODEVIGIL_WRITE_DOCS").is_some() {
        let text =
            format!("{before}<!-- maintenance: {begin} -->\n{made}<!-- /maintenance -->{after}");
        fs::write(root().join("docs/operate.md"), text).unwrap();
        return;
    }
    assert!(
        table == made,
        "docs/operate.md has not the table of the registry: make docs"
    );
    // Every row, and none that suppresses without saying so.
    for row in nodevigil::cluster::api::MAINTENANCE_SIGNS {
        let line = table.lines().find(|line| line.contains(row.mark.name()));
        let line = line.unwrap_or_else(|| panic!("no row for {}", row.id));
        assert!(line.contains(row.source), "{line}");
    }
}

#[test]
fn what_looks_like_a_reason_is_one() {
    let mut known: BTreeSet<String> = registry().into_iter().map(|(name, _)| name).collect();
    known.extend(nodevigil::desired::TYPES.iter().map(|t| t.name.to_owned()));
    let beginnings = [
        "Kubelet",
        "ContainerRuntime",
        "Storage",
        "Filesystem",
        "Kernel",
        "Memory",
        "Node",
        "Bootstrap",
    ];
    let looks_so = |word: &str| {
        let is_word = word.chars().all(char::is_alphanumeric);
        is_word
            && beginnings.iter().any(|begin| {
                word.strip_prefix(begin)
                    .is_some_and(|rest| rest.starts_with(char::is_uppercase))
            })
    };
    for word in quoted(&operate()) {
        let word = ["=True", "=False", "=Unknown"]
            .iter()
            .find_map(|status| word.strip_suffix(status))
            .unwrap_or(&word);
        assert!(
            !looks_so(word) || known.contains(word),
            "docs/operate.md names {word}, which is neither a reason nor a condition"
        );
    }
}

#[test]
fn every_taint_that_is_named_is_one_of_ours() {
    let rules = Rules::default();
    let ours: Vec<String> = ConditionType::ALL.iter().map(|k| rules.key(*k)).collect();
    let mut named = 0;
    for (path, text) in documents() {
        for rest in text.split(&rules.prefix).skip(1) {
            let slug: String = rest
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                .collect();
            let key = format!("{}{}", rules.prefix, slug.trim_end_matches('-'));
            let is_prefix_alone = slug.is_empty();
            named += usize::from(!is_prefix_alone);
            assert!(
                is_prefix_alone || ours.contains(&key),
                "{}: {key}",
                path.display()
            );
        }
    }
    assert!(named >= 2, "{named}");
}

#[test]
fn every_command_of_ours_in_the_prose_is_one() {
    // As README.md has it: to come.
    const TO_COME: &[&str] = &["nodevigil history"];
    let mut seen = 0;
    for (path, text) in documents() {
        if path.starts_with("docs/decisions.md") || path.starts_with("CHANGELOG.md") {
            continue; // what was, and why
        }
        for word in quoted(&text) {
            let Some(arguments) = word.strip_prefix("nodevigil ") else {
                continue;
            };
            if TO_COME.contains(&word.as_str()) || word.contains('…') {
                continue;
            }
            let arguments = arguments.replace(['[', ']'], "");
            let words = arguments.split_whitespace();
            let parsed = nodevigil::cli::Cli::command()
                .try_get_matches_from(std::iter::once("nodevigil").chain(words));
            if let Err(error) = parsed {
                use clap::error::ErrorKind as Kind;
                // A command that is only named, without what it needs, or asked for its help.
                let fine = matches!(
                    error.kind(),
                    Kind::MissingRequiredArgument
                        | Kind::DisplayHelp
                        | Kind::DisplayVersion
                        | Kind::MissingSubcommand
                        | Kind::DisplayHelpOnMissingArgumentOrSubcommand
                );
                assert!(fine, "{}: `{word}`: {error}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// As GitHub makes it of a heading.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for (path, text) in documents() {
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            if target.contains("://") || target.contains(char::is_whitespace) || target.is_empty() {
                continue;
            }
            let (file, section) = target.split_once('#').unwrap_or((target, ""));
            let to = match file {
                "" => root().join(&path),
                file => root().join(path.parent().unwrap()).join(file),
            };
            assert!(
                to.exists(),
                "{} links to {target}, which is not there",
                path.display()
            );
            if !section.is_empty() {
                let there = fs::read_to_string(&to).unwrap();
                let headings = there.lines().filter_map(|line| {
                    let title = line.trim_start_matches('#');
                    title.strip_prefix(' ').filter(|_| title.len() < line.len())
                });
                let found = headings.into_iter().any(|title| anchor(title) == section);
                assert!(
                    found,
                    "{} links to {target}: no such section",
                    path.display()
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}
