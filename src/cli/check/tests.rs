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
        serde_json::from_str(&self.check(&["--phase=after", "--output=json"]).1).unwrap()
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
fn sarif_names_files_below_its_root_and_fingerprints_that_added_lines_do_not_change() {
    let host = Host::new("broken-five-ways");
    let log = || serde_json::from_str::<Value>(&host.check(&["--output=sarif"]).1).unwrap();
    let before = log();
    let run = &before["runs"][0];
    let root = run["originalUriBaseIds"]["ROOT"]["uri"].as_str().unwrap().strip_prefix("file://").unwrap();
    let results = run["results"].as_array().unwrap();
    assert!(results.len() >= 5, "{before:#}");
    for result in results {
        let file = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        assert_eq!(file["uriBaseId"], "ROOT");
        assert!(Path::new(root).join(file["uri"].as_str().unwrap()).is_file(), "{file}");
        let rule =
            run["tool"]["driver"]["rules"].as_array().unwrap().iter().find(|rule| rule["id"] == result["ruleId"]);
        assert!(rule.unwrap()["helpUri"].as_str().unwrap().starts_with("https://"), "{rule:?}");
    }
    let fingerprints = |log: &Value| {
        let results = log["runs"][0]["results"].as_array().unwrap().iter();
        let of =
            results.map(|result| result["partialFingerprints"]["primaryLocationLineHash"].as_str().unwrap().to_owned());
        of.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(fingerprints(&before).len(), results.len(), "each is that of one finding");
    let file = host.root().join("etc/default/kubelet");
    fs::write(&file, format!("# a comment\n\n{}", fs::read_to_string(&file).unwrap())).unwrap();
    assert_eq!(fingerprints(&log()), fingerprints(&before));
}

#[test]
fn a_junit_report_fails_where_the_exit_code_is_one_and_is_never_empty() {
    let host = Host::new("broken-five-ways");
    let count = |text: &str, tag: &str| text.matches(tag).count();
    let (code, report) = host.check(&["--output=junit", "--deny=fatal"]);
    let failures = count(&report, "<failure type=\"fatal\"");
    assert!(code == BAD && failures >= 1 && count(&report, "<system-out>error: ") >= 2, "{report}");
    assert_eq!(count(&report, &format!("failures=\"{failures}\"")), 2, "{report}");
    assert_eq!(count(&report, "<testcase "), count(&report, "</testcase>"));
    let (code, report) = host.check(&["--output=junit", "--select=SD005", "--deny=fatal"]);
    assert!(code == GOOD && count(&report, "<failure") == 0 && count(&report, "<testcase ") == 1, "{report}");
    let (code, report) = host.check(&["--output=junit", "--select=SD021"]);
    assert!(code == GOOD && count(&report, "<skipped ") == 1, "{report}");
}

#[test]
fn a_tree_without_a_kubelets_state_is_checked_as_an_image() {
    let host = Host::new("aks");
    let phase = |arguments: &[&str]| {
        let report = host.check(&[&["--output=json"], arguments].concat()).1;
        let report: Value = serde_json::from_str(&report).unwrap();
        (report["phase"].as_str().unwrap().to_owned(), report["summary"]["fatal"].as_u64().unwrap())
    };
    assert_eq!(phase(&[]), ("before".to_owned(), 0), "the first boot brings the kubeconfig");
    assert_eq!(phase(&["--phase=after"]), ("after".to_owned(), 1));
    fs::create_dir_all(host.root().join("var/lib/kubelet")).unwrap();
    fs::write(host.root().join("var/lib/kubelet/cpu_manager_state"), "{}").unwrap();
    assert_eq!(phase(&[]), ("after".to_owned(), 1), "a kubelet has run");
}

#[test]
fn the_settings_ignore_rules_unless_the_command_line_selects_them() {
    let host = Host::new("broken-five-ways");
    let settings = host.dir.path().join("fleet.toml");
    fs::write(&settings, "check.ignore = ['SD005', 'FL', 'label-forbidden']\n").unwrap();
    let config = format!("--config={}", settings.display());
    let rules = |arguments: &[&str]| {
        let report = host.check(&[&["--output=json", &config], arguments].concat()).1;
        let report: Value = serde_json::from_str(&report).unwrap();
        report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["rule"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let found = rules(&[]);
    let is_ignored = |rule: &String| rule == "SD005" || rule == "CL009" || rule.starts_with("FL");
    assert!(!found.is_empty() && !found.iter().any(is_ignored), "{found:?}");
    assert_eq!(rules(&["--select=SD005"]), ["SD005"]);
    fs::write(&settings, "check.ignore = ['label-forbiden']\n").unwrap();
    let error = parse(&[host.root().to_str().unwrap(), &config]).unwrap().check().unwrap_err().to_string();
    assert!(error.contains("fleet.toml:1:") && error.contains("did you mean label-forbidden?"), "{error}");
}

#[test]
fn the_report_says_what_the_patch_fixes_and_how_to_apply_it() {
    let host = Host::new("broken-five-ways");
    let (_, report) = host.check(&[]);
    let marked = report.matches("`nodevigil check --fix` fixes this").count();
    assert!(
        marked >= 3 && report.contains(&format!("--fix fixes {marked} of them:\n  nodevigil check --fix")),
        "{report}"
    );
    let (_, report) = host.check(&["--severity=fatal", "--select=SD005"]);
    assert!(!report.contains("--fix"), "nothing of what is shown: {report}");
}

#[test]
fn the_report_can_go_to_a_file() {
    let host = Host::new("broken-five-ways");
    let file = host.dir.path().join("report.xml");
    let (root, option) = (host.root(), format!("--output-file={}", file.display()));
    let run = |option: &str| parse(&[root.to_str().unwrap(), "--output=junit", option]).unwrap().run();
    assert_eq!(run(&option), BAD);
    assert!(fs::read_to_string(&file).unwrap().starts_with("<?xml"));
    assert_eq!(run("--output-file=/nowhere/x"), UNKNOWN, "1 would mean that there are findings");
}

#[test]
fn the_exit_code_of_an_error_differs_from_that_of_a_failed_check() {
    let broken = Host::new("broken-five-ways");
    assert_eq!(broken.check(&[]).0, BAD);
    assert_eq!(Host::new("eks-al2023-nodeadm").check(&[]).0, GOOD);
    assert_eq!(broken.check(&["--select=KN,SD001"]).0, GOOD);
    assert_eq!(broken.check(&["--select=SD005", "--deny=fatal"]).0, GOOD);
    assert_eq!(Host::new("kops").check(&["--deny=warning"]).0, GOOD);
    assert_eq!(broken.check(&["--select=SD005", "--fix", "--deny=warning"]).0, GOOD, "it is fixed");
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
        assert_eq!(check.run(), UNKNOWN);
    }
    let refused = parse(&["--config=/nowhere", root.to_str().unwrap()]).unwrap();
    assert_eq!(refused.run(), EXIT_CONFIG);
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
    let run = || parse(&[root.to_str().unwrap(), &once, "--output=sarif"]).unwrap().run();
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
    for output in ["text", "json", "sarif", "junit", "github"] {
        let (_, text) = host.check(&["--verbose", "--output", output]);
        assert!(text.contains("ubelet") && !text.contains("K10s3cret"), "{output}: {text}");
    }
}
