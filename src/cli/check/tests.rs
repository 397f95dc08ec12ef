//! The command on the hosts of `tests/hosts`, each with its `expected.json`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use clap::{Args as _, Command, FromArgMatches as _};
use serde_json::{Value, json};

use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn parse(arguments: &[&str]) -> Result<Check, clap::Error> {
    let command = Check::augment_args(Command::new("check"));
    let matches = command.try_get_matches_from([&["check"], arguments].concat())?;
    Check::from_arg_matches(&matches)
}

/// Runs the command; fails where it could not check.
fn check(root: &Path, arguments: &[&str]) -> (u8, String) {
    let root = root.to_str().unwrap();
    parse(&[&[root], arguments].concat()).unwrap().check().unwrap()
}

/// A host of `tests/hosts`, with the modes that git does not keep.
struct Host {
    name: String,
    dir: tempfile::TempDir,
    expected: Value,
    options: Vec<String>,
}

impl Host {
    fn new(name: &str) -> Self {
        let source = repository().join("tests/hosts").join(name);
        let expected: Value = serde_json::from_slice(&fs::read(source.join("expected.json")).unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("rootfs");
        copy(&source.join("rootfs"), &root);
        for (path, mode) in expected["modes"].as_object().into_iter().flatten() {
            let mode = u32::from_str_radix(mode.as_str().unwrap(), 8).unwrap();
            fs::set_permissions(root.join(path.trim_start_matches('/')), Permissions::from_mode(mode)).unwrap();
        }
        let facts = dir.path().join("facts.json");
        fs::write(&facts, facts_of(&expected["host"]).to_string()).unwrap();
        let mut options = vec![format!("--facts={}", facts.display())];
        let intent = &expected["intent"];
        for key in ["cloud_provider", "node_ip", "provider_id"] {
            options.extend(intent[key].as_str().map(|value| format!("--intent={key}={value}")));
        }
        for (key, value) in intent["node_labels"].as_object().into_iter().flatten() {
            options.push(format!("--intent=node-label={key}={}", value.as_str().unwrap()));
        }
        Self { name: name.to_owned(), dir, expected, options }
    }

    fn all() -> Vec<Self> {
        let entries = fs::read_dir(repository().join("tests/hosts")).unwrap();
        let names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.len() >= 10, "{names:?}");
        names.iter().map(|name| Self::new(name)).collect()
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }

    fn check(&self, arguments: &[&str]) -> (u8, String) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        check(&self.root(), &[&options, arguments].concat())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.check(&["--output=json"]).1).unwrap()
    }
}

/// The facts of expected.json that are not in the files of the host, in the format of `--facts`.
fn facts_of(host: &Value) -> Value {
    json!({
        "host": {
            "hostname": host["hostname"],
            "kubeletVersion": host["kubelet_version"],
            "runtimeVersion": host["containerd"].as_str().or(host["crio"].as_str()),
            "systemdVersion": host["systemd"].as_str().map(|version| version.parse::<u32>().unwrap()),
            "serverDisablesCloudController": host["k3s_server_disables_ccm"],
            "cgroupV2": host["cgroup"].as_u64().map(|number| number == 2),
        },
        "cloud": {"provider": host["provider"], "instanceId": host["instance_id"], "zone": host["zone"]},
    })
}

/// Copies a tree with its links, as 0644 and 0755 whatever the umask was when it was checked out.
fn copy(from: &Path, to: &Path) {
    if from.is_symlink() {
        return symlink(fs::read_link(from).unwrap(), to).unwrap();
    }
    let mode = if fs::metadata(from).unwrap().permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
    if from.is_dir() {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).unwrap();
    }
    fs::set_permissions(to, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn every_host_is_resolved_as_recorded() {
    for host in Host::all() {
        let (name, expected, report) = (&host.name, &host.expected, host.json());
        for key in ["name", "fragment", "dropins", "env_files"] {
            assert_eq!(report["unit"][key], expected["unit"][key], "{name}: {key}");
        }
        assert_eq!(report["argv"], expected["argv"], "{name}");
        for (variable, row) in expected["variables"].as_object().into_iter().flatten() {
            for (key, value) in row.as_object().unwrap() {
                assert_eq!(&report["variables"][variable][key], value, "{name}: {variable}.{key}");
            }
        }
        let kubelet = &expected["kubelet"];
        let model = kubelet["argv_model"].as_array().and_then(|argv| argv.get(1..));
        let Some(flags) = kubelet["flags"].as_array().map(Vec::as_slice).or(model) else { continue };
        // Their order is that of a Go map; the address of RKE2's node is that of an interface, which is in no file.
        let sorted = |flags: &[Value]| {
            let mut flags: Vec<String> = flags.iter().map(Value::to_string).collect();
            flags.retain(|flag| model.is_none() || !flag.contains("--node-ip="));
            flags.sort();
            flags
        };
        assert_eq!(sorted(report["kubelet"]["flags"].as_array().unwrap()), sorted(flags), "{name}");
        assert_eq!(report["kubelet"]["in_process"], kubelet["in_process"], "{name}");
    }
}

/// Rule, severity and place of each finding of these rules, sorted.
fn judged(findings: &Value, scope: &[&str]) -> Vec<String> {
    let is_judged = |finding: &&Value| scope.iter().any(|start| finding["rule"].as_str().unwrap().starts_with(start));
    let findings = findings.as_array().unwrap().iter().filter(is_judged);
    let mut rows: Vec<String> =
        findings.map(|row| format!("{} {} {}", row["rule"], row["severity"], row["at"])).collect();
    rows.sort();
    rows
}

#[test]
fn every_host_is_judged_as_recorded() {
    for host in Host::all() {
        let scope = host.expected["scope"].as_array().unwrap().iter().filter_map(Value::as_str);
        // The owner of a file is not recorded: it is the user who runs the test.
        let is_root = fs::metadata(host.dir.path()).is_ok_and(|dir| std::os::unix::fs::MetadataExt::uid(&dir) == 0);
        let scope: Vec<&str> = scope.filter(|rule| is_root || *rule != "SD026").collect();
        let (report, expected) = (host.json(), &host.expected["findings"]);
        assert_eq!(judged(&report["findings"], &scope), judged(expected, &scope), "{}", host.name);
    }
}

/// Fails unless `value` has the fields that `schema` has, no others, and of each enumeration a value.
fn assert_fits(root: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        return assert_fits(root, root.pointer(reference.trim_start_matches('#')).unwrap(), value, at);
    }
    for name in schema["required"].as_array().into_iter().flatten().filter(|_| !value.is_null()) {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{at} has no {name}");
    }
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{at} is {value}");
    }
    for item in value.as_array().into_iter().flatten() {
        assert_fits(root, &schema["items"], item, at);
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let others = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let known = schema["properties"].get(name).unwrap_or(others);
        assert!(*known != false, "{at}.{name} is not in the schema");
        assert_fits(root, known, field, &format!("{at}.{name}"));
    }
}

#[test]
fn the_json_document_is_as_its_schema_says() {
    let schema = fs::read(repository().join("docs/reference/check.schema.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    for host in Host::all() {
        assert_fits(&schema, &schema, &host.json(), &host.name);
    }
}

#[test]
fn a_patch_fixes_what_its_notes_list_and_the_exit_code_is_that_of_the_rest() {
    let host = Host::new("kubeadm-debian-hetzner");
    let (code, patch) = host.check(&["--fix", "--intent=cloud-provider=external"]);
    assert!(code == GOOD && patch.contains("\n+KUBELET_EXTRA_ARGS=--cloud-provider=external\n"), "{code} {patch}");
    let (code, patch) = host.check(&["--fix", "--intent=cloud-provider=external", "--ignore=SD,CL"]);
    assert_eq!((code, patch.as_str()), (GOOD, ""));
}

#[test]
fn sarif_names_files_that_exist() {
    let host = Host::new("broken-five-ways");
    let log: Value = serde_json::from_str(&host.check(&["--output=sarif"]).1).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(results.len() >= 5, "{log:#}");
    for result in results {
        let uri = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        let path = uri.as_str().unwrap().strip_prefix("file://").unwrap();
        assert!(Path::new(path).is_file(), "{path}");
    }
}

#[test]
fn the_exit_code_of_an_error_differs_from_that_of_a_failed_check() {
    let broken = Host::new("broken-five-ways");
    assert_eq!(broken.check(&[]).0, BAD);
    assert_eq!(Host::new("eks-al2023-nodeadm").check(&[]).0, GOOD);
    assert_eq!(broken.check(&["--select=KN,SD001"]).0, GOOD);
    let ignored = "--ignore=FL002,CL,SD005,env-not-referenced,CF,AU,NW,RT,KN,CP";
    assert_eq!(broken.check(&[ignored]).0, GOOD);
    let (code, text) = broken.check(&["--severity=fatal"]);
    let is_counted = text.replace("\n ", "").contains("not shown");
    assert!(code == BAD && !text.contains("error[") && is_counted, "what is not shown counts: {text}");

    let root = broken.root();
    let empty = tempfile::tempdir().unwrap();
    for (root, arguments, word) in [
        (Path::new("/nowhere/at/all"), &[][..], "/nowhere/at/all"),
        (Path::new("/etc/passwd"), &[], "not a directory"),
        (empty.path(), &[], "--unit"),
        (empty.path(), &["--fix"], "--unit"),
        (&root, &["--unit=mine"], "mine.service"),
        (&root, &["--facts=/nowhere.json"], "/nowhere.json"),
    ] {
        let check = parse(&[&[root.to_str().unwrap()], arguments].concat()).unwrap();
        let error = check.check().unwrap_err();
        assert!(format!("{error:#}").contains(word), "{error:#}");
        assert_eq!(check.run().unwrap(), UNKNOWN);
    }
    let refused = parse(&["--config=/nowhere", root.to_str().unwrap()]).unwrap();
    assert_eq!(refused.run().unwrap(), EXIT_CONFIG);
    for wrong in ["--kubelet-version=2.1", "--select=XY", "--phase=during", "--output=xml", "--intent=cloud-provider=x"]
    {
        assert!(parse(&[wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn a_comment_with_a_reason_allows_a_finding() {
    let host = Host::new("broken-five-ways");
    let file = host.root().join("var/lib/kubelet/kubeadm-flags.env");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("# nodevigil: allow FL002, CL009: rewritten tonight\n{text}")).unwrap();
    let report = host.json();
    let allowed = report["allowed"].as_array().unwrap();
    assert_eq!(allowed.len(), 2, "{report:#}");
    for row in allowed {
        assert_eq!(row["by"], "/var/lib/kubelet/kubeadm-flags.env:1");
        assert_eq!(row["reason"], "rewritten tonight");
    }
    let (_, text) = host.check(&[]);
    assert!(text.contains("\nallowed: FL002 at ") && !text.contains("[FL002"), "{text}");
}

#[test]
fn the_same_report_is_printed_once() {
    let host = Host::new("broken-five-ways");
    let file = host.dir.path().join("printed");
    let (root, once) = (host.root(), format!("--once={}", file.display()));
    let run = || parse(&[root.to_str().unwrap(), &once, "--output=sarif"]).unwrap().run().unwrap();
    assert_eq!(run(), BAD);
    let first = fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!((run(), fs::metadata(&file).unwrap().modified().unwrap()), (BAD, first));
}

#[test]
fn a_secret_is_not_printed() {
    let host = Host::new("kubeadm-debian-hetzner");
    let write = |path: &str, text: &str| fs::write(host.root().join(path), text).unwrap();
    let flags = "--token=K10s3cret --manifest-url=https://me:K10s3cret@host/pods?X-Amz-Signature=K10s3cret";
    let variables = "K3S_TOKEN=K10s3cret\nhttp_proxy=http://me:K10s3cret@proxy:1/";
    write("etc/default/kubelet", &format!("{variables}\nKUBELET_EXTRA_ARGS={flags}\n"));
    write(
        "etc/kubernetes/kubelet.conf",
        "apiVersion: v1\nkind: Config\nusers:\n- {name: x, user: {token: K10s3cret}}\n",
    );
    for output in ["text", "json", "sarif"] {
        let (_, text) = host.check(&["--verbose", "--output", output]);
        assert!(text.contains("kubelet") && !text.contains("K10s3cret"), "{output}: {text}");
    }
}
