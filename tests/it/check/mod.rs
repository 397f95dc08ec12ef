//! `nodevigil check` as a user runs it: the ten hosts, hostile trees, exit codes, formats, the text in the README.

mod hostile;
mod output;
mod schema;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Far more than any of these takes; a hang is a failure.
const DEADLINE: Duration = Duration::from_secs(20);

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a run printed, and how it ended.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}{}", self.stdout, self.stderr))
    }
}

/// Runs the program in a folder; it has a deadline.
fn nodevigil_in(dir: &Path, args: &[&str]) -> Run {
    let out = tempfile::tempfile().unwrap();
    let err = tempfile::tempfile().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_nodevigil"))
        .args(args)
        .current_dir(dir)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(err.try_clone().unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > DEADLINE {
            child.kill().ok();
            child.wait().ok();
            panic!("{args:?} did not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Run {
        code: status.code().unwrap(),
        stdout: text_of(out),
        stderr: text_of(err),
    }
}

fn text_of(mut file: fs::File) -> String {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

fn check(root: &Path, args: &[&str]) -> Run {
    let root = root.to_str().unwrap();
    nodevigil_in(repository(), &[&["check", "--root", root], args].concat())
}

/// One of tests/hosts, with the modes that git does not keep.
struct Host {
    dir: tempfile::TempDir,
    expected: Value,
}

impl Host {
    fn new(name: &str) -> Self {
        let source = repository().join("tests/hosts").join(name);
        let text = fs::read_to_string(source.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let dir = tempfile::tempdir().unwrap();
        copy(&source.join("rootfs"), &dir.path().join("rootfs"));
        let host = Self { dir, expected };
        for (path, mode) in host.expected["modes"].as_object().into_iter().flatten() {
            let mode = u32::from_str_radix(mode.as_str().unwrap(), 8).unwrap();
            let path = host.root().join(path.trim_start_matches('/'));
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        host
    }

    fn all() -> Vec<(String, Self)> {
        let mut names: Vec<String> = fs::read_dir(repository().join("tests/hosts"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert!(names.len() >= 10, "{names:?}");
        let host = |name: String| (name.clone(), Self::new(&name));
        names.into_iter().map(host).collect()
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }

    /// What expected.json says of the host beside its files, as options and as `--facts`.
    fn options(&self) -> Vec<String> {
        let host = &self.expected["host"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let runtime = ["containerd", "crio"]
            .iter()
            .find_map(|name| text(&host[name]));
        let facts = json!({
            "host": {
                "hostname": host["hostname"],
                "kubeletVersion": host["kubelet_version"],
                "runtimeVersion": runtime,
                "systemdVersion": text(&host["systemd"]).map(|v| v.parse::<u32>().unwrap()),
                "serverDisablesCloudController": host["k3s_server_disables_ccm"],
                "cgroupV2": host["cgroup"].as_u64().map(|number| number == 2),
            },
            "cloud": {
                "provider": host["provider"],
                "instanceId": host["instance_id"],
                "zone": host["zone"],
            },
        });
        let file = self.dir.path().join("facts.json");
        fs::write(&file, facts.to_string()).unwrap();
        let mut options = vec!["--facts".to_owned(), file.to_str().unwrap().to_owned()];
        let intent = &self.expected["intent"];
        for (key, option) in [
            ("cloud_provider", "cloud-provider"),
            ("node_ip", "node-ip"),
            ("provider_id", "provider-id"),
        ] {
            if let Some(value) = intent[key].as_str() {
                options.push(format!("--intent={option}={value}"));
            }
        }
        for (key, value) in intent["node_labels"].as_object().into_iter().flatten() {
            options.push(format!(
                "--intent=node-label={key}={}",
                value.as_str().unwrap()
            ));
        }
        options
    }

    fn check(&self, args: &[&str]) -> Run {
        let options = self.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        check(&self.root(), &[&options, args].concat())
    }
}

/// Copies a tree with its links, as 0644 and 0755 whatever the umask was when it was checked out.
fn copy(from: &Path, to: &Path) {
    let kind = fs::symlink_metadata(from).unwrap().file_type();
    if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from).unwrap(), to).unwrap();
        return;
    }
    let executable = fs::metadata(from).unwrap().permissions().mode() & 0o100 != 0;
    if kind.is_dir() {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).unwrap();
    }
    let mode = if executable { 0o755 } else { 0o644 };
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_hosts_are_resolved_as_recorded() {
    for (name, host) in Host::all() {
        let report = host.check(&["--format=json"]).json();
        let expected = &host.expected;
        for key in ["name", "fragment", "dropins", "env_files"] {
            assert_eq!(report["unit"][key], expected["unit"][key], "{name}: {key}");
        }
        assert_eq!(report["argv"], expected["argv"], "{name}");
        for (variable, row) in expected["variables"].as_object().into_iter().flatten() {
            for (key, value) in row.as_object().unwrap() {
                assert_eq!(
                    &report["variables"][variable][key], value,
                    "{name}: {variable}.{key}"
                );
            }
        }
        let kubelet = &expected["kubelet"];
        let model = kubelet["argv_model"]
            .as_array()
            .and_then(|argv| argv.get(1..));
        if let Some(flags) = kubelet["flags"].as_array().map(Vec::as_slice).or(model) {
            // Their order is a Go map's; the address of RKE2's node is that of an interface, which no file says.
            let sorted = |flags: &[Value]| {
                let mut flags: Vec<String> = flags.iter().map(Value::to_string).collect();
                flags.retain(|flag| model.is_none() || !flag.contains("--node-ip="));
                flags.sort();
                flags
            };
            let resolved = report["kubelet"]["flags"].as_array().unwrap();
            assert_eq!(sorted(resolved), sorted(flags), "{name}");
            assert_eq!(
                report["kubelet"]["in_process"], kubelet["in_process"],
                "{name}"
            );
        }
    }
}

/// (rule, severity, place) of each finding within the host's scope, sorted.
fn judged(findings: &Value, scope: &[&str]) -> Vec<String> {
    let mut rows: Vec<String> = findings
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| {
            let rule = finding["rule"].as_str().unwrap();
            scope.iter().any(|prefix| rule.starts_with(prefix))
        })
        .map(|finding| {
            format!(
                "{} {} {}",
                finding["rule"], finding["severity"], finding["at"]
            )
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn the_hosts_findings_are_those_recorded() {
    for (name, host) in Host::all() {
        let report = host.check(&["--format=json"]).json();
        let scope: Vec<&str> = host.expected["scope"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            // Who owns a file is not in the tree: it is whoever runs the test.
            .filter(|rule| nix::unistd::geteuid().is_root() || *rule != "SD026")
            .collect();
        assert_eq!(
            judged(&report["findings"], &scope),
            judged(&host.expected["findings"], &scope),
            "{name}"
        );
    }
}

#[test]
fn json_is_as_its_schema_says() {
    let text = fs::read_to_string(repository().join("docs/reference/check.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    for (name, host) in Host::all() {
        for args in [&["--format=json"][..], &["--format=json", "--show=env"]] {
            let report = host.check(args).json();
            assert_eq!(schema::problems(&schema, &report), [""; 0], "{name}");
        }
    }
}

#[test]
fn sarif_names_files_that_are_there() {
    let host = Host::new("broken-five-ways");
    let options = host.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let args = [&["check", "--root=rootfs", "--format=sarif"], &options[..]].concat();
    let log = nodevigil_in(host.dir.path(), &args).json();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules: Vec<&Value> = run["tool"]["driver"]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["id"])
        .collect();
    let results = run["results"].as_array().unwrap();
    assert!(results.len() >= 5, "{log:#}");
    for result in results {
        assert!(rules.contains(&&result["ruleId"]), "{result}");
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(host.dir.path().join(uri).is_file(), "{uri}");
        if let Some(region) = place["region"].as_object() {
            assert!(region["startLine"].as_u64().unwrap() > 0, "{result}");
        }
    }
}

#[test]
fn the_exit_code_says_how_it_went() {
    let broken = Host::new("broken-five-ways");
    let healthy = Host::new("eks-al2023-nodeadm");
    assert_eq!(broken.check(&[]).code, 1);
    assert_eq!(healthy.check(&[]).code, 0, "{}", healthy.check(&[]).stdout);
    assert_eq!(broken.check(&["--select=KN,SD001"]).code, 0);
    let others = "--ignore=FL002,CL,SD005,env-not-referenced";
    assert_eq!(broken.check(&[others]).code, 1);
    assert_eq!(
        broken.check(&[others, "--ignore=CF,AU,NW,RT,KN,CP"]).code,
        0
    );
    // What is not shown still counts.
    let run = broken.check(&["--severity=fatal"]);
    assert_eq!(run.code, 1);
    assert!(!run.stdout.contains("error[") && run.stdout.contains("not shown"));
    assert_eq!(broken.check(&["--show=argv"]).code, 0);

    let empty = tempfile::tempdir().unwrap();
    for (root, args, word) in [
        (Path::new("/nowhere/at/all"), &[][..], "/nowhere/at/all"),
        (Path::new("/etc/passwd"), &[], "not a folder"),
        (empty.path(), &[], "--unit"),
        (&broken.root(), &["--unit=mine"], "mine.service"),
        (&broken.root(), &["--select=XY"], "XY"),
        (&broken.root(), &["--facts=/nowhere.json"], "/nowhere.json"),
        (&broken.root(), &["--config=/nowhere"], "/nowhere"),
    ] {
        let run = check(root, args);
        assert_eq!(run.code, 2, "{args:?} {}", run.stdout);
        assert!(
            run.stderr.contains(word) && run.stdout.is_empty(),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_comment_with_a_reason_allows_a_finding() {
    let host = Host::new("broken-five-ways");
    let file = host.root().join("var/lib/kubelet/kubeadm-flags.env");
    let text = fs::read_to_string(&file).unwrap();
    let comment = "# nodevigil: allow FL002, CL009: rewritten by kubeadm upgrade tonight\n";
    fs::write(&file, format!("{comment}{text}")).unwrap();
    let report = host.check(&["--format=json"]).json();
    let allowed = report["allowed"].as_array().unwrap();
    assert_eq!(allowed.len(), 2, "{report:#}");
    for row in allowed {
        assert_eq!(row["by"], "/var/lib/kubelet/kubeadm-flags.env:1");
        assert_eq!(row["reason"], "rewritten by kubeadm upgrade tonight");
    }
    for finding in report["findings"].as_array().unwrap() {
        assert!(
            finding["rule"] != "FL002" && finding["rule"] != "CL009",
            "{finding}"
        );
    }
}

#[test]
fn the_same_is_said_once() {
    let host = Host::new("broken-five-ways");
    let file = host.dir.path().join("said");
    let once = format!("--once={}", file.display());
    let first = host.check(&[&once]);
    let second = host.check(&[&once]);
    assert!(first.stdout.contains("fatal[") && second.stdout.is_empty());
    assert_eq!((first.code, second.code), (1, 1));
}
