//! What documents and man pages claim of the program is what its own tables say: names, settings with their defaults, exit codes, metrics,
//! rules, stories, make targets, paths, units, values of the chart, variables of the role, versions, unit settings, runbooks of alerts. And
//! how long the pages are. numbers.rs has the numbers that no setting holds.
//!
//! The tables are docs/reference/stable-names.txt and packaging/config.d/00-defaults.toml, which tests of the program hold to its code,
//! and the sources themselves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use tidy::{files, files_with, read, repository};

/// Names of others that begin like conditions and reasons of ours.
const FOREIGN: &[&str] = &[
    "KubeletConfiguration",
    "KubeletFailed",
    "KubeletReady",
    "NodeProblem",
    "NodeProblemDetector",
    "NodeReadinessRule",
    "NodeRepair",
    "NodeRepairBlocked",
    "NodeRestriction",
    "MemoryPressure",
    "StorageError",
];
/// What names of ours begin with.
const OURS: &[&str] = &[
    "Kubelet",
    "ContainerRuntime",
    "Bootstrap",
    "Filesystem",
    "Kernel",
    "Memory",
    "Node",
    "Nvidia",
    "Nodevigil",
    "Storage",
    "Systemd",
];

/// Words that the documentation of Kubernetes and systemd would not use so.
const ODD: &[&str] = &["behind", "beside", "none of a", "what of", "another than", "whatever it finds", "anew"];

/// Where the packages install docs.
const DOCUMENTS: &str = "/usr/share/doc/nodevigil";

/// A document, and its spans of code that are in no block.
struct Document {
    name: String,
    text: String,
    spans: Vec<String>,
}

#[test]
fn named_settings_exist_and_have_the_default_that_is_claimed() {
    let (names, defaults) = (stable_names(), read("packaging/config.d/00-defaults.toml"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for document in documents() {
        for (position, _) in document.text.match_indices("`[") {
            let (span, after) = document.text[position + 1..].split_once('`').unwrap();
            let Some((section, key)) = span.strip_prefix('[').and_then(|span| span.split_once("] ")) else { continue };
            if section.starts_with("X.Y") {
                continue; // a section of the changelog
            }
            let key = key.split([' ', '=']).next().unwrap();
            let name = format!("setting {section}.{key}");
            let is_known = names.contains(&name) || section.starts_with("reasons.");
            let claimed: String =
                after.strip_prefix(" (").unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
            let value = || defaults.lines().find_map(|line| line.strip_prefix(&format!("#{key} = ")));
            if !is_known || (!claimed.is_empty() && value() != Some(&claimed)) {
                wrong.push(format!("{}: [{section}] {key} {claimed}", document.name));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty() && count > 15, "{count} settings: {wrong:#?}");
}

#[test]
fn claimed_exit_codes_are_those_of_the_command() {
    let names = stable_names();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in documents() {
        for (position, _) in document.text.match_indices("` exits with ") {
            let command = document.text[..position].rsplit('`').next().unwrap();
            let Some(arguments) = command.strip_prefix("nodevigil ") else { continue };
            let words: Vec<_> =
                arguments.split(' ').take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())).collect();
            let sentence = document.text[position..].split(". ").next().unwrap();
            for code in sentence.split(" with ").skip(1).filter_map(|rest| rest.split([' ', ',', ':', '.', ';']).next())
            {
                if code.parse::<u8>().is_ok()
                    && !names.contains(&format!("exit-code nodevigil {} {code}", words.join(" ")))
                {
                    wrong.push(format!("{}: {command} exits with {code}", document.name));
                }
                count += 1;
            }
        }
    }
    assert!(wrong.is_empty() && count > 3, "{count} exit codes: {wrong:#?}");
}

#[test]
fn named_conditions_reasons_troubles_and_metrics_exist() {
    let names = stable_names();
    let known: BTreeSet<&str> = names.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in documents() {
        for span in &document.spans {
            let name = span.split(['=', '{', ' ']).next().unwrap();
            let is_name =
                OURS.iter().any(|start| name.starts_with(start)) && name.chars().all(|c| c.is_ascii_alphanumeric());
            let is_ours = (is_name && !FOREIGN.contains(&name)) || name.starts_with("nodevigil_");
            let is_unit_setting = span.ends_with('=');
            count += usize::from(is_ours);
            if is_ours && !is_unit_setting && !known.contains(name) && !is_alert(name) {
                wrong.push(format!("{}: {span}", document.name));
            }
        }
    }
    assert!(wrong.is_empty() && count > 200, "{count} names: {wrong:#?}");
}

fn is_alert(name: &str) -> bool {
    read("packaging/monitoring/alerts.yaml").contains(&format!("- alert: {name}\n"))
}

/// Also those in queries, alerts and the dashboard.
#[test]
fn named_metrics_and_variables_exist() {
    let names = stable_names();
    let metrics: BTreeSet<&str> =
        names.iter().filter_map(|name| name.strip_prefix("metric ")).filter(|name| !name.contains(' ')).collect();
    let role = read("packaging/ansible/nodevigil/defaults/main.yml");
    let code = code();
    let monitoring =
        ["alerts.yaml", "alerts_test.yaml", "dashboard.json"].map(|name| format!("packaging/monitoring/{name}"));
    let texts = documents().into_iter().map(|document| (document.name, document.text));
    let mut count = 0;
    for (page, text) in texts.chain(monitoring.into_iter().map(|name| (name.clone(), read(&name)))) {
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            let (start, rest) = word.split_once('_').unwrap_or_default();
            let is_process =
                start == "process" && ["bytes", "fds", "total", "seconds"].iter().any(|end| rest.ends_with(end));
            let is_known = match start {
                "nodevigil" if rest.starts_with(|c: char| c.is_ascii_lowercase()) => {
                    let sample = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
                    metrics.contains(sample.unwrap_or(word)) || role.contains(&format!("\n{word}: "))
                }
                "process" if is_process => metrics.contains(word),
                "NODEVIGIL" => code.contains(word),
                _ => continue,
            };
            assert!(is_known, "{page} names {word}, which does not exist");
            count += 1;
        }
    }
    assert!(count > 100, "{count} metrics and variables");
}

#[test]
fn named_units_are_those_that_are_installed_or_started() {
    let code = code() + &documents().iter().find(|document| document.name == "docs/bootstrap.md").unwrap().text;
    let mut count = 0;
    for document in documents() {
        for word in document.text.split(|c: char| !(c.is_ascii_alphanumeric() || "-.@_".contains(c))) {
            let Some(unit) = word.strip_suffix(".service").filter(|unit| unit.starts_with("nodevigil")) else {
                continue;
            };
            let is_started = || unit.strip_prefix("nodevigil-custom-").is_some() && code.contains("nodevigil-custom-");
            let is_installed = repository().join(format!("systemd/{word}")).exists();
            assert!(is_installed || is_started(), "{} names {word}", document.name);
            count += 1;
        }
        for transient in document.text.split("--unit=nodevigil-").skip(1) {
            assert!(transient.starts_with("bootstrap"), "{}: --unit=nodevigil-{transient:.20}", document.name);
        }
    }
    assert!(count > 15, "{count} units");
}

#[test]
fn named_values_of_the_chart_exist() {
    let values = read("packaging/helm/nodevigil/README.md");
    let mut count = 0;
    for document in documents() {
        for option in ["--set ", "--set-literal "] {
            for (value, _) in document.text.split(option).skip(1).filter_map(|rest| rest.split_once('=')) {
                let (first, _) = value.split_once('.').unwrap_or((value, ""));
                let is_known = values.contains(&format!("| `{value}` |")) || values.contains(&format!("| `{first}` |"));
                assert!(is_known, "{}: the chart has no value {value}", document.name);
                count += 1;
            }
        }
    }
    assert!(count > 5, "{count} values");
}

#[test]
fn tables_of_exit_codes_have_each_code_of_their_command() {
    let names = stable_names();
    let mut count = 0;
    for document in documents() {
        for (position, _) in document.text.match_indices("| exit code |") {
            let words = document.text[..position].rsplit("nodevigil ").next().unwrap();
            let command = words.split([' ', '`', '\n']).next().unwrap();
            let rows = document.text[position..].split("\n\n").next().unwrap().lines().skip(2);
            let stated: Vec<_> = rows.filter_map(|row| row.split(' ').nth(1)).map(str::to_owned).collect();
            let prefix = format!("exit-code nodevigil {command} ");
            let known: Vec<_> = names.iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
            assert!(!known.is_empty() && stated == known, "{}: {command}: {stated:?}, not {known:?}", document.name);
            count += 1;
        }
    }
    assert!(count > 0, "no table of exit codes");
}

#[test]
fn named_rules_exist() {
    let names = stable_names();
    let known: BTreeSet<&str> = names.iter().filter_map(|name| name.strip_prefix("rule ")?.split(' ').next()).collect();
    for document in documents() {
        for word in document.text.split(|c: char| !c.is_ascii_alphanumeric()) {
            let (letters, digits) = word.split_at_checked(2).unwrap_or_default();
            let is_rule =
                ["AU", "CF", "CL", "CP", "FL", "KN", "NW", "RS", "RT", "SD"].contains(&letters) && digits.len() == 3;
            assert!(!is_rule || known.contains(word), "{} names the rule {word}, which does not exist", document.name);
        }
    }
}

#[test]
fn named_stories_exist() {
    let sources: String = files_with("rs", &repository().join("tests/e2e/src/stories"))
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let mut count = 0;
    for document in documents() {
        for span in document
            .spans
            .iter()
            .filter(|span| span.contains("::") && !span.contains(|c: char| c.is_ascii_uppercase() || c == '('))
        {
            let name = span.trim_end_matches('…');
            let module = format!("\"{}::", name.split("::").next().unwrap());
            let text = if name.ends_with("::") { format!("\"{name}") } else { format!("\"{name}\"") };
            assert!(!sources.contains(&module) || sources.contains(&text), "{} names the story {span}", document.name);
            count += 1;
        }
    }
    assert!(count > 50, "{count} stories");
}

#[test]
fn named_make_targets_exist() {
    let makefile = read("Makefile");
    let mut count = 0;
    for document in documents() {
        let commands = document.text.split(['`', '\n', '(']).filter_map(|part| part.trim().strip_prefix("make "));
        for target in commands.filter_map(|rest| rest.split_whitespace().next()) {
            let target = target.trim_end_matches([')', ',', '.']);
            if target.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                && document.spans.iter().any(|span| span.starts_with(&format!("make {target}")))
            {
                assert!(makefile.contains(&format!("\n{target}:")), "{} names make {target}", document.name);
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count} targets");
}

#[test]
fn named_paths_of_nodevigil_are_those_that_it_uses() {
    let code = code();
    let is_name = |file: &str| code.contains(&format!("/{file}")) || code.contains(&format!("\"{file}"));
    let mut count = 0;
    for document in documents() {
        for start in [
            "/etc/nodevigil",
            "/run/nodevigil",
            "/var/lib/nodevigil",
            "/usr/lib/nodevigil",
            "/usr/share/nodevigil",
            DOCUMENTS,
        ] {
            for (position, _) in document.text.match_indices(start) {
                let rest = document.text[position..]
                    .split(|c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c)))
                    .next()
                    .unwrap();
                let path = rest.trim_end_matches(['.', '/']);
                if let Some(page) = path.strip_prefix(DOCUMENTS).and_then(|rest| rest.strip_prefix('/')) {
                    assert!(repository().join("docs").join(page).exists(), "{} names {path}", document.name);
                    continue;
                }
                // The user chooses the names in there.
                let path = path.split_once("/config.d/").map_or(path, |(directory, _)| directory);
                let path = path.split_once("/records/").map_or(path, |(directory, _)| directory);
                let in_two =
                    path.rsplit_once('/').filter(|(directory, file)| code.contains(directory) && is_name(file));
                assert!(code.contains(path) || in_two.is_some(), "{} names {path}", document.name);
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count} paths");
}

#[test]
fn versions_and_addresses_are_those_of_the_program() {
    let cargo = read("Cargo.toml");
    let version =
        cargo.lines().find_map(|line| line.strip_prefix("version = \"")).unwrap().trim_end_matches('"').to_owned();
    let rust =
        cargo.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap().trim_end_matches('"').to_owned();
    let modules = ["tests/cluster", "packaging/nfpm", "packaging/image", "packaging/helm"]
        .map(|directory| read(&format!("{directory}/go.mod")));
    let defaults = read("packaging/config.d/00-defaults.toml");
    for document in documents() {
        for (words, value) in [("Rust ", &rust), ("nodevigil_", &version), ("nodevigil-", &version)] {
            for after in
                document.text.split(words).skip(1).filter(|after| after.starts_with(|c: char| c.is_ascii_digit()))
            {
                assert!(
                    after.starts_with(value.as_str()),
                    "{}: {words}{}",
                    document.name,
                    after.lines().next().unwrap()
                );
            }
        }
        for go in document.text.split("Go ").skip(1).filter(|after| after.starts_with(|c: char| c.is_ascii_digit())) {
            let go: String = go.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            let go = go.trim_end_matches('.');
            assert!(modules.iter().all(|module| module.contains(&format!("\ngo {go}"))), "{}: Go {go}", document.name);
        }
        for port in document.text.split("127.0.0.1:").skip(1) {
            let address = format!("127.0.0.1:{}", port.chars().take_while(char::is_ascii_digit).collect::<String>());
            assert!(defaults.contains(&address), "{}: {address}", document.name);
        }
    }
}

#[test]
fn the_sandbox_that_the_documents_describe_is_that_of_the_unit() {
    let unit = read("systemd/nodevigil.service");
    let security = documents().into_iter().find(|document| document.name == "docs/security.md").unwrap();
    let settings = security.spans.iter().filter(|span| {
        span.split_once('=')
            .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_alphabetic()) && key.starts_with(char::is_uppercase))
    });
    let mut count = 0;
    for setting in settings {
        assert!(unit.contains(&format!("\n{setting}")), "docs/security.md: {setting}");
        count += 1;
    }
    assert!(count > 5, "{count} settings of the unit");
}

#[test]
fn every_alert_has_a_runbook_that_exists_and_a_test() {
    let (alerts, tests, operate) = (
        read("packaging/monitoring/alerts.yaml"),
        read("packaging/monitoring/alerts_test.yaml"),
        read("docs/operate.md"),
    );
    let headings: BTreeSet<String> = operate.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    let conditions: Vec<String> = stable_names()
        .iter()
        .filter_map(|name| name.strip_prefix("condition "))
        .filter(|name| !name.contains(' '))
        .map(str::to_lowercase)
        .collect();
    let mut count = 0;
    for alert in alerts.split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap();
        let url = alert.split("runbook_url: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let (page, heading) = url.split_once('#').unwrap_or_default();
        assert!(page.ends_with("/docs/operate.md"), "{name}: {url}");
        let wanted = if heading.starts_with("{{") { conditions.clone() } else { vec![heading.to_owned()] };
        let missing: Vec<_> = wanted.iter().filter(|wanted| !headings.contains(*wanted)).collect();
        assert!(missing.is_empty(), "{name}: docs/operate.md has no heading {missing:?}");
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} has no test");
        count += 1;
    }
    assert!(count > 10, "{count} alerts");
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// README.md and the pages of docs are read by people in a hurry. docs/platforms.md is generated and grows with the nodes.
#[test]
fn pages_are_short_and_use_the_words_of_the_field() {
    let pages = documents();
    let lines = |is_counted: &dyn Fn(&str) -> bool| -> usize {
        pages.iter().filter(|page| is_counted(&page.name)).map(|page| page.text.lines().count()).sum()
    };
    let is_page = |name: &str| name.starts_with("docs/") && name.matches('/').count() == 1;
    assert!(lines(&|name| name == "README.md") <= 190, "README.md");
    assert!(lines(&|name| name == "docs/limits.md") <= 100, "docs/limits.md");
    let all = lines(&|name| is_page(name) && name != "docs/platforms.md");
    assert!(all <= 1500, "the pages of docs have {all} lines");
    let mut wrong = Vec::new();
    for page in &pages {
        for (number, line) in page.text.lines().enumerate() {
            let words = format!(" {} ", line.to_lowercase().replace([',', '.', ':', ';', '(', ')'], " "));
            let odd = ODD.iter().find(|odd| words.contains(&format!(" {odd} ")));
            wrong.extend(odd.map(|odd| format!("{}:{}: {odd}", page.name, number + 1)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn stable_names() -> BTreeSet<String> {
    read("docs/reference/stable-names.txt").lines().map(str::to_owned).collect()
}

/// All that is installed, and what the program and its scripts contain, without the documents.
fn code() -> String {
    let directories =
        ["src", "systemd", "packaging", "cloud-init"].map(|directory| files(&repository().join(directory)));
    let files = directories
        .into_iter()
        .flatten()
        .filter(|file| !file.extension().is_some_and(|end| end == "md" || is_man(end)));
    files.filter_map(|file| fs::read_to_string(file).ok()).collect()
}

fn is_man(extension: &OsStr) -> bool {
    extension == "1" || extension == "5"
}

/// A man page as its reader sees it, with its bold and italic words as spans.
fn shown(roff: &str) -> String {
    let spans = roff.replace("\\fB", "`").replace("\\fI", "`").replace("\\fR", "`");
    spans.replace("\\-", "-").replace("\\*(Aq", "'").replace("\\(aq", "'").replace("``", "")
}

/// README.md and its like, docs, the documents of the packages, and the man pages.
fn documents() -> Vec<Document> {
    let mut paths = files(&repository().join("docs"));
    paths.extend(["cloud-init", "packaging"].iter().flat_map(|directory| files(&repository().join(directory))));
    paths.extend(fs::read_dir(repository()).unwrap().map(|entry| entry.unwrap().path()));
    paths.retain(|path| path.extension().is_some_and(|end| end == "md" || is_man(end)));
    let document = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let text = if path.extension().is_some_and(is_man) { shown(&text) } else { text };
        let prose: Vec<&str> = text.split("```").step_by(2).collect();
        let spans = prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
        Document { name: path.strip_prefix(repository()).unwrap().display().to_string(), text, spans }
    };
    paths.into_iter().map(document).collect()
}
