//! Reads the settings files. Errors name file, line, column and key.
//!
//! The files are those of the UAPI group's Configuration Files Specification: the first `config.toml` of /etc, /run and
//! /usr/lib, then the drop-ins of `config.d` in all three, sorted by file name. A drop-in in /etc replaces one of the same name
//! in /run, and that one in /usr/lib. Later files override earlier ones, setting by setting.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use toml::{Table, Value};

use super::{Settings, custom};
use crate::files;

/// The exit code for invalid settings: `EX_CONFIG` of sysexits.h, which systemd shows as `status=78/CONFIG`.
pub const EXIT_CONFIG: u8 = 78;

/// The directories of settings files; a later one overrides an earlier one.
const DIRECTORIES: [&str; 3] = ["usr/lib/nodevigil", "run/nodevigil", "etc/nodevigil"];
/// A longer file is refused.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why settings are invalid.
#[derive(Debug)]
pub struct Error {
    /// One for each invalid file: `path:line:column: key: what is wrong`.
    pub problems: Vec<String>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

impl std::error::Error for Error {}

impl Error {
    fn new(path: &Path, error: &io::Error) -> Self {
        Self { problems: vec![format!("{}: {error}", path.display())] }
    }
}

/// The settings of the host whose file system is at `root_dir`, or of the files and directories `given` instead, if there are any.
pub fn load(root_dir: &Path, given: &[PathBuf]) -> Result<Settings, Error> {
    load_files(&find(root_dir, given)?)
}

/// The settings of these files; a later file overrides an earlier one.
pub fn load_files(files: &[PathBuf]) -> Result<Settings, Error> {
    let mut merged = Table::new();
    let mut problems = Vec::new();
    for path in files {
        match read(path) {
            Ok(table) => merge(&mut merged, table),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(Error { problems });
    }
    // Each file is valid: two contradict each other about a check.
    let contradiction = |problem: String| {
        let check = problem.split_once(": ").and_then(|(key, _)| key.strip_prefix("custom.")).unwrap_or_default();
        let place = files.iter().rev().find_map(|path| place_of(path, &format!("custom.{check}"))).unwrap_or_default();
        Error { problems: vec![place + &problem] }
    };
    let settings: Settings = merged.try_into().map_err(|error| contradiction(named(error)))?;
    let definitions = custom::definitions(&settings.custom).map_err(contradiction)?;
    // A check and the taint of its condition may be in two files.
    for unknown in custom::unknown_types(&settings.taints.conditions, &definitions) {
        let quoted =
            |path: &PathBuf| ['"', '\''].iter().find_map(|quote| place_of(path, &format!("{quote}{unknown}{quote}")));
        let place = files.iter().find_map(quoted).unwrap_or_default();
        let wanted = "expected one that `nodevigil explain` lists, or that a check of [custom] has";
        problems.push(format!("{place}taints.conditions: no condition is named {unknown}: {wanted}"));
    }
    if problems.is_empty() { Ok(settings) } else { Err(Error { problems }) }
}

/// The first line of the file that has this word, as `path:line: `.
fn place_of(path: &Path, word: &str) -> Option<String> {
    let text = files::read(path, MAX_FILE_BYTES).ok()?;
    let index = text.lines().position(|line| line.contains(word))?;
    Some(format!("{}:{}: ", path.display(), index + 1))
}

/// The files that make up the settings, in the order in which they are read.
pub fn find(root_dir: &Path, given: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    if given.is_empty() {
        return find_in(&DIRECTORIES.map(|directory| root_dir.join(directory)));
    }
    let mut found = Vec::new();
    for path in given {
        if path.is_dir() {
            let mut files = BTreeMap::new();
            list(path, &mut files)?;
            found.extend(files.into_values());
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn find_in(directories: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut drop_ins = BTreeMap::new();
    for directory in directories {
        list(&directory.join("config.d"), &mut drop_ins)?;
    }
    // A dangling link exists too: reading it fails with an error.
    let mut main = directories.iter().rev().map(|directory| directory.join("config.toml"));
    let main = main.find(|path| path.symlink_metadata().is_ok());
    Ok(main.into_iter().chain(drop_ins.into_values()).collect())
}

/// Adds a directory's `*.toml` files by name; a later file replaces one with the same name. Hidden files, such as an editor's, are
/// ignored. A directory that does not exist has no files.
fn list(directory: &Path, found: &mut BTreeMap<OsString, PathBuf>) -> Result<(), Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::new(directory, &error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| Error::new(directory, &error))?.path();
        if let Some(name) = path.file_name()
            && path.extension().is_some_and(|extension| extension == "toml")
            && !name.as_encoded_bytes().starts_with(b".")
        {
            found.insert(name.to_owned(), path);
        }
    }
    Ok(())
}

/// A file's table. Each file must be valid on its own, because an error in merged tables has no line.
fn read(path: &Path) -> Result<Table, String> {
    let text = files::read(path, MAX_FILE_BYTES).map_err(|error| format!("{}: {error}", path.display()))?;
    let table = toml::from_str::<Settings>(&text).and_then(|_| toml::from_str(&text));
    table.map_err(|error| describe(path, &text, error))
}

fn describe(path: &Path, text: &str, error: toml::de::Error) -> String {
    let position = error.span().and_then(|span| text.get(..span.start)).map_or_else(String::new, |before| {
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        format!("{line}:{}:", before[line_start..].chars().count() + 1)
    });
    format!("{}:{position} {}", path.display(), named(error))
}

/// The error as `key: what is wrong`.
fn named(mut error: toml::de::Error) -> String {
    let message = error.message().to_owned();
    // Only the text of an error without input names the key.
    error.set_input(None);
    let shown = error.to_string();
    let key = shown.rsplit_once("\nin `").and_then(|(_, key)| key.trim_end().strip_suffix('`'));
    key.map_or_else(String::new, |key| format!("{key}: ")) + &message
}

/// Overrides `settings` with `later`.
fn merge(settings: &mut Table, later: Table) {
    for (key, value) in later {
        match (settings.get_mut(&key), value) {
            (Some(Value::Table(table)), Value::Table(later)) => merge(table, later),
            (_, value) => _ = settings.insert(key, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::{Reason, ShownAs};
    use crate::settings::{CloudProvider, IntentSettings, ReasonSettings, RecordSettings, accepted};

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn error(text: &str) -> String {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/nodevigil/config.toml", text);
        let error = load(root.path(), &[]).unwrap_err().to_string();
        error.strip_prefix(root.path().to_str().unwrap()).unwrap().to_owned()
    }

    #[test]
    fn an_error_names_file_line_column_key_and_what_is_wanted() {
        let expected = [
            (
                "[kubelet]\nunits = 1",
                "2:1: kubelet: unknown field `units`, expected one of `unit`, `healthz_url`, `start_grace_secs`",
            ),
            ("[kubelet]\nunit = 1", "2:8: kubelet.unit: invalid type: integer `1`, expected a string"),
            (
                "# é\n[conditions]\n  healthy_for_secs = -1",
                "3:22: conditions.healthy_for_secs: -1 is out of range: expected 1 to 3600 seconds",
            ),
            (
                "metrics = { enabled = true, listen = ':80' }",
                "1:38: metrics.listen: \":80\" is not an address: expected IP:PORT, such as 127.0.0.1:20258 or [::1]:20258",
            ),
            (
                "[kubernetes]\npublish = 'all'",
                "2:11: kubernetes.publish: unknown variant `all`, expected `conditions` or `none`",
            ),
            (
                "[intent]\nnode_ip = '10.0.0.7,10.0.0.8'",
                "2:11: intent.node_ip: \"10.0.0.7,10.0.0.8\" is invalid: expected an IP address, or an IPv4 and an IPv6 address \
                 separated by a comma, such as 10.0.0.7",
            ),
            (
                "[reasons.KubeletHung]\nas = 'false'",
                "2:6: reasons.KubeletHung.as: unknown variant `false`, expected `warning` or `off`",
            ),
            (
                "[reasons.KubeletIsHealthy]\nas = 'off'",
                "1:10: reasons: KubeletIsHealthy cannot be downgraded: expected the reason of a problem",
            ),
            (
                "[reasons.KubeletHangs]\nas = 'off'",
                "1:10: reasons: no reason is named KubeletHangs: expected a reason that `nodevigil explain` lists",
            ),
            (
                "[taints]\nconditions = [\n'KubeletHelthy']",
                "3: taints.conditions: no condition is named KubeletHelthy: expected one that `nodevigil explain` lists, or that a \
                 check of [custom] has",
            ),
            (
                "[check]\nignore = ['SD001', 'RS01']",
                "2:10: check.ignore: no rule is named \"RS01\"; did you mean RS001?",
            ),
            (
                "[check]\nignore = ['unknwon-flag']",
                "2:10: check.ignore: no rule is named \"unknwon-flag\"; did you mean unknown-flag?",
            ),
            ("[kubelet]\nunit = 'a'\nunit = 'b'", "3:1: duplicate key"),
            ("[kubelet", "1:9: unclosed table, expected `]`"),
        ];
        for (text, expected) in expected {
            assert_eq!(error(text), format!("/etc/nodevigil/config.toml:{expected}"));
        }
    }

    #[test]
    fn a_value_that_can_never_work_is_refused_with_its_line() {
        let expected = [
            (
                "[kubelet]\nhealthz_url = 'https://127.0.0.1:10248/healthz'",
                "2:15: kubelet.healthz_url: \"https://127.0.0.1:10248/healthz\" is invalid: expected http://ADDRESS:PORT/PATH with an IP \
                 address or localhost, such as http://127.0.0.1:10248/healthz",
            ),
            (
                "[records]\n\nupload_url = 'https://{record}'",
                "3:14: records.upload_url: \"https://{record}\" is invalid: expected https://HOST/PATH with {record} in the path, such as \
                 https://records.example.com/{node}/{record}.json",
            ),
            (
                "[records]\nupload_proxy = 'socks5://proxy:3128'",
                "2:16: records.upload_proxy: \"socks5://proxy:3128\" is invalid: expected http://HOST:PORT, such as http://proxy.example.com:3128",
            ),
            (
                "[records]\nupload_proxy = 'socks5://u:S3cret@proxy'",
                "2:16: records.upload_proxy: the value is invalid: expected http://HOST:PORT, such as http://proxy.example.com:3128",
            ),
            (
                "[records]\nupload_url = 'https://a/{x}?code=S3cret'",
                "2:14: records.upload_url: the value is invalid: expected https://HOST/PATH with {record} in the path, such as \
                 https://records.example.com/{node}/{record}.json",
            ),
            (
                "[kubernetes]\nnode_name = ''",
                "2:13: kubernetes.node_name: \"\" is invalid: expected the name of a Node: lower-case letters, digits, `-` and `.`",
            ),
            (
                "[kubernetes]\nkubeconfig = ''",
                "2:14: kubernetes.kubeconfig: \"\" is invalid: expected a path that begins with /",
            ),
            (
                "[storage]\nruntime_paths = ['/a', 'b']",
                "2:17: storage.runtime_paths: \"b\" is invalid: expected a path that begins with /",
            ),
        ];
        for (text, expected) in expected {
            assert_eq!(error(text), format!("/etc/nodevigil/config.toml:{expected}"));
        }
    }

    #[test]
    fn a_url_that_can_never_work_is_refused() {
        let is_accepted = |key: &str, url: &str| toml::from_str::<Settings>(&format!("{key} = '{url}'")).is_ok();
        for (key, right, wrong) in [
            (
                "kubelet.healthz_url",
                &["http://localhost:10248/healthz", "http://[::1]:10248/healthz", "http://10.0.0.7:10248"][..],
                &[
                    "127.0.0.1:10248",
                    "http://node:10248/healthz",
                    "http://127.0.0.1/healthz",
                    "http://127.0.0.1:99999/",
                ][..],
            ),
            (
                "records.upload_url",
                &["https://a.example.com:8443/{node}/{record}.json?sig=S3cret", "https://[fd00::1]/{record}"][..],
                &["http://a/{record}", "https://a/{node}", "https://a:99999/{record}", "https://a/{nodename}/{record}"]
                    [..],
            ),
            (
                "records.upload_proxy",
                &["http://proxy:3128", "http://u:S3cret@10.0.0.1:3128", "https://proxy", "localhost:3128"][..],
                &["http://", "ftp://proxy", "http://proxy:port"][..],
            ),
        ] {
            for url in right {
                assert!(is_accepted(key, url), "{key} = {url}");
            }
            for url in wrong {
                assert!(!is_accepted(key, url), "{key} = {url}");
            }
        }
    }

    #[test]
    fn files_replace_files_of_the_same_name_and_later_ones_win() {
        let root = tempfile::tempdir().unwrap();
        let unit = || load(root.path(), &[]).unwrap().kubelet.unit;
        assert_eq!(load(root.path(), &[]).unwrap(), Settings::default());
        write(root.path(), "usr/lib/nodevigil/config.toml", "kubelet.unit = 'vendor-main.service'");
        assert_eq!(unit().unwrap(), "vendor-main.service");
        write(root.path(), "etc/nodevigil/config.toml", "kubelet.start_grace_secs = 7");
        assert_eq!(unit(), None);
        write(root.path(), "usr/lib/nodevigil/config.d/20-b.toml", "kubelet.unit = 'vendor.service'");
        write(root.path(), "etc/nodevigil/config.d/10-a.toml", "kubelet.unit = 'admin'");
        assert_eq!(unit().unwrap(), "vendor.service", "the name counts, not the directory");
        write(root.path(), "run/nodevigil/config.d/20-b.toml", "");
        assert_eq!(unit().unwrap(), "admin.service");
        write(root.path(), "etc/nodevigil/config.d/30-c.conf", "not read");
        write(root.path(), "etc/nodevigil/config.d/.30-c.toml", "not read");
        assert_eq!(load(root.path(), &[]).unwrap().kubelet.start_grace_secs.duration().as_secs(), 7);

        write(root.path(), "given/a.toml", "kubelet.unit = 'given.service'");
        write(root.path(), "last.toml", "kubelet.healthz_url = 'http://127.0.0.1:1/healthz'");
        let given = ["given", "last.toml"].map(|path| root.path().join(path));
        let kubelet = load(root.path(), &given).unwrap().kubelet;
        assert_eq!((kubelet.unit.as_deref(), kubelet.healthz_url.is_some()), (Some("given.service"), true));
        assert_eq!(kubelet.start_grace_secs.duration().as_secs(), 120, "what is given replaces the usual files");
        assert!(load(root.path(), &[root.path().join("none.toml")]).is_err());
    }

    #[test]
    fn two_files_that_contradict_each_other_are_named() {
        let root = tempfile::tempdir().unwrap();
        let unit = "[custom.chrony]\nreason = 'ChronyFailed'\nunit.name = 'chrony.service'\n";
        write(root.path(), "etc/nodevigil/config.d/a.toml", unit);
        let problem = |text: &str| {
            write(root.path(), "etc/nodevigil/config.d/b.toml", &format!("# ours\n{text}"));
            let problem = load(root.path(), &[]).unwrap_err().to_string();
            problem.strip_prefix(root.path().to_str().unwrap()).map(str::to_owned).ok_or(problem)
        };
        let wanted = "/etc/nodevigil/config.d/b.toml:2: custom.chrony: expected exactly one of the tables `unit`, `command` and `log`";
        let other = "[custom.chrony]\nreason = 'ChronyFailed'\ncommand.argv = ['/bin/true']";
        assert_eq!(problem(other).as_deref(), Ok(wanted));
        let condition = "[custom.chrony]\nreason = 'ChronyFailed'\ncondition = 'ChronyOk'\nunit.name = 'a.service'\n";
        let other = format!(
            "{condition}[custom.z]\nreason = 'Z'\ncondition = 'ChronyOk'\nproblem = 'True'\nlog.patterns = ['z']"
        );
        let problem = problem(&other).unwrap();
        assert!(
            problem.starts_with("/etc/nodevigil/config.d/b.toml:6: custom.z: another check of ChronyOk"),
            "{problem}"
        );
    }

    #[test]
    fn every_file_that_is_refused_is_named() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/nodevigil/config.toml", "a = 1");
        write(root.path(), "etc/nodevigil/config.d/a.toml", "[b]");
        write(root.path(), "etc/nodevigil/config.d/b.toml", &"#\n".repeat(1 << 19));
        write(root.path(), "etc/nodevigil/config.d/c.toml", &"#\n".repeat((1 << 19) + 1));
        let problems = load(root.path(), &[]).unwrap_err().problems;
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[2].ends_with("c.toml: the file is larger than 1048576 bytes"), "{problems:?}");
    }

    #[test]
    fn an_error_has_no_signature_of_a_url() {
        let error = error("records.upload_url = 'https://a.example.com/k?sv=1&sig=S3cretS3cretS3cret'");
        assert!(error.contains("upload_url: the value is invalid") && !error.contains("S3cret"), "{error}");
    }

    #[test]
    fn every_setting_is_kept_and_its_error_names_it() {
        let mut settings = Settings::default();
        settings.kubelet.unit = Some("k3s.service".into());
        settings.kubelet.healthz_url = Some("http://127.0.0.1:10248/healthz".to_owned().try_into().unwrap());
        settings.kubernetes.kubeconfig = Some("/etc/kubeconfig".into());
        settings.kubernetes.node_name = Some("worker-1".into());
        settings.intent = IntentSettings {
            cloud_provider: Some(CloudProvider::External),
            node_ip: Some("10.0.0.7,fd00::7".to_owned().try_into().unwrap()),
            provider_id: Some("hcloud://7".to_owned().try_into().unwrap()),
            node_labels: BTreeMap::from([("pool".into(), "blue".into())]),
        };
        settings.check.ignore = vec!["RS001".parse().unwrap(), "cl".parse().unwrap()];
        settings.taints.conditions.insert("KubeletHealthy".to_owned().try_into().unwrap());
        settings.reasons.insert(Reason::KubeletHung, ReasonSettings { shown_as: ShownAs::Warning });
        settings.runtime.endpoint = Some("unix:///run/crio/crio.sock".to_owned().try_into().unwrap());
        settings.runtime.unit = Some("crio.service".into());
        settings.records = RecordSettings {
            enabled: false,
            upload_url: Some("https://records.example.com/{node}/{record}.json".to_owned().try_into().unwrap()),
            upload_token_file: Some("/etc/token".into()),
            upload_headers_file: Some("/etc/headers".into()),
            upload_ca_file: Some("/etc/ca.crt".into()),
            upload_proxy: Some("http://proxy.example.com:3128".to_owned().try_into().unwrap()),
        };

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("accepted-settings.toml");
        assert_eq!(accepted::read(&path), None);
        accepted::save(&path, &settings);
        assert_eq!(accepted::read(&path), Some(settings.clone()));

        let mut keys = Vec::new();
        leaves("", &Table::try_from(&settings).unwrap(), &mut keys);
        assert_eq!(keys.len(), 31, "{keys:?}");
        for key in keys {
            let error = error(&format!("{key} = [1]"));
            assert!(error.contains(&format!(": {key}: ")), "{key}: {error}");
        }
    }

    fn leaves(prefix: &str, table: &Table, keys: &mut Vec<String>) {
        for (key, value) in table {
            match value {
                Value::Table(table) => leaves(&format!("{prefix}{key}."), table, keys),
                _ => keys.push(format!("{prefix}{key}")),
            }
        }
    }
}
