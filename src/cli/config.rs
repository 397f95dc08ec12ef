//! `nodevigil config`: checks, shows and imports settings.

mod import_npd;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{GOOD, Output, complain, print};
use crate::report::table;
use crate::{files, settings};

#[derive(Debug, clap::Subcommand)]
pub enum Config {
    Check(Check),
    Show(Show),
    ImportNpd(import_npd::ImportNpd),
}

/// Check the settings files
///
/// Exit code: 0 the settings are valid, 78 they are invalid.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Check these files, and the *.toml files of these directories [default: the files that the agent reads, such as those of /etc/nodevigil]
    #[arg(value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

/// Show every setting that has a value, with the file and line that sets it
///
/// Reads the files as they are now. The agent uses a changed file after a restart.
///
/// Exit code: 0 the settings are valid, 78 they are invalid.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Read these files, and the *.toml files of these directories [default: the files that the agent reads, such as those of /etc/nodevigil]
    #[arg(value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Print a table, or JSON
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// A setting that has a value.
#[derive(Debug, Serialize)]
struct Setting {
    key: String,
    value: Value,
    /// `FILE:LINE`, or `default`.
    set_by: String,
}

impl Config {
    pub fn run(self) -> anyhow::Result<u8> {
        let answer = match self {
            Self::ImportNpd(import) => return import.run(),
            Self::Check(check) => check.check(Path::new("/")),
            Self::Show(show) => match show.settings(Path::new("/")) {
                Ok(settings) => Ok(show.output.render(&settings, || text(&settings))?),
                Err(error) => Err(error),
            },
        };
        match answer {
            Ok(answer) => print(&answer)?,
            Err(error) => {
                error.problems.iter().for_each(|problem| complain(problem));
                return Ok(settings::EXIT_CONFIG);
            }
        }
        Ok(GOOD)
    }
}

impl Check {
    fn check(&self, root_dir: &Path) -> Result<String, settings::Error> {
        let files = settings::find(root_dir, &self.paths)?;
        settings::load_files(&files)?;
        Ok(match files.len() {
            1 => "ok: 1 file\n".to_owned(),
            count => format!("ok: {count} files\n"),
        })
    }
}

impl Show {
    fn settings(&self, root_dir: &Path) -> Result<Vec<Setting>, settings::Error> {
        let files = settings::find(root_dir, &self.paths)?;
        let merged = settings::load_files(&files)?;
        let mut set_by = BTreeMap::new();
        for path in &files {
            // The file was read a moment ago; if it was deleted since, its settings are shown as defaults.
            let text = files::read(path, settings::MAX_FILE_BYTES).unwrap_or_default();
            if let Ok(table) = DeTable::parse(&text) {
                lines("", table.get_ref(), &text, &mut |key, line| {
                    set_by.insert(key, format!("{}:{line}", path.display()));
                });
            }
        }
        let mut found = Vec::new();
        values("", Table::try_from(&merged).unwrap_or_default(), &mut |key, value| {
            let set_by = set_by.remove(&key).unwrap_or_else(|| "default".to_owned());
            found.push(Setting { key, value, set_by });
        });
        Ok(found)
    }
}

/// Calls `found` with each key of a file that has a value, and its line.
fn lines(section: &str, table: &DeTable<'_>, text: &str, found: &mut impl FnMut(String, usize)) {
    for (key, value) in table {
        let name = join(section, key.get_ref());
        match value.get_ref() {
            DeValue::Table(table) => lines(&name, table, text, found),
            _ => found(name, text[..key.span().start].matches('\n').count() + 1),
        }
    }
}

fn values(section: &str, table: Table, found: &mut impl FnMut(String, Value)) {
    for (key, value) in table {
        let name = join(section, &key);
        match value {
            Value::Table(table) => values(&name, table, found),
            // A URL can have a user or a signature in it.
            Value::String(text) => found(name, redact::hide_secrets(&text).into()),
            // All are texts; those of a command may have a token.
            Value::Array(words) => {
                found(name, redact::hide_in_words(words.iter().filter_map(Value::as_str)).into());
            }
            value => found(name, value),
        }
    }
}

/// A dotted key of TOML.
fn join(section: &str, key: &str) -> String {
    let is_bare = key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let key = if is_bare { key.to_owned() } else { Value::from(key).to_string() };
    if section.is_empty() { key } else { format!("{section}.{key}") }
}

fn text(settings: &[Setting]) -> String {
    let row = |setting: &Setting| ([setting.key.clone(), setting.set_by.clone(), setting.value.to_string()], "");
    table::text(["SETTING", "SET BY", "VALUE"], settings.iter().map(row))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_answer_counts_the_files_that_were_read() {
        let root = tempfile::tempdir().unwrap();
        let check = Check { paths: vec![] };
        assert_eq!(check.check(root.path()).unwrap(), "ok: 0 files\n", "the defaults are in effect");
        let drop_ins = root.path().join("etc/nodevigil/config.d");
        fs::create_dir_all(&drop_ins).unwrap();
        fs::write(drop_ins.join("a.toml"), "").unwrap();
        assert_eq!(check.check(root.path()).unwrap(), "ok: 1 file\n");
        let missing = Check { paths: vec![root.path().join("missing.toml")] };
        let error = missing.check(root.path()).unwrap_err().to_string();
        assert!(error.ends_with("/missing.toml: No such file or directory (os error 2)"), "{error}");
    }

    #[test]
    fn each_setting_is_shown_with_the_file_and_line_that_counts() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("etc/nodevigil");
        fs::create_dir_all(directory.join("config.d")).unwrap();
        let main = "kubelet.unit = 'a.service'\n\n[intent.node_labels]\n'x.io/pool' = 'blue'\n\
            [records]\nupload_url = 'https://a/{record}?sig=S3cretS3cretS3cret'\n\
            [custom.api]\nreason = 'ApiDown'\n\
            command.argv = ['/bin/curl', '-H', 'Authorization: Bearer S3cretS3cret', 'https://u:S3cret@h/', '--token', 'S3cret']\n";
        fs::write(directory.join("config.toml"), main).unwrap();
        let drop_in = "# ours\n[kubelet]\nunit = 'b.service'\n[reasons]\nKubeletHung.as = 'off'\n";
        fs::write(directory.join("config.d/a.toml"), drop_in).unwrap();
        let show = Show { paths: Vec::new(), output: Output::Text };
        let settings = show.settings(root.path()).unwrap();
        let of = |key: &str| {
            let setting = settings.iter().find(|setting| setting.key == key).unwrap();
            (setting.value.to_string(), setting.set_by.strip_prefix(directory.to_str().unwrap()).unwrap_or("-"))
        };
        assert_eq!(of("kubelet.unit"), ("\"b.service\"".into(), "/config.d/a.toml:3"));
        assert_eq!(of("intent.node_labels.\"x.io/pool\""), ("\"blue\"".into(), "/config.toml:4"));
        assert_eq!(of("reasons.KubeletHung.as"), ("\"off\"".into(), "/config.d/a.toml:5"));
        assert_eq!(of("kubelet.start_grace_secs"), ("120".into(), "-"));
        let text = text(&settings);
        assert!(text.contains("https://a/{record}?sig=***") && !text.contains("S3cret"), "{text}");
        assert!(of("custom.api.command.argv").0.starts_with("[\"/bin/curl\", \"-H\", \"Authorization: "));
        assert!(
            text.lines().any(|line| line.starts_with("metrics.enabled")
                && line.contains("default ")
                && line.ends_with(" true")),
            "{text}"
        );
        fs::write(directory.join("config.d/b.toml"), "unit = 1").unwrap();
        assert!(show.settings(root.path()).is_err());
    }
}
