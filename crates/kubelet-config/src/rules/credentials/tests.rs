use std::path::Path;

use super::*;
use crate::fix::plan;
use crate::kubelet::config::{ConfigFile, ConfigFileState, UnknownField};
use crate::kubelet::effective::From;
use crate::kubelet::resolve::{Inputs, Overrides, resolve};
use crate::kubelet::snapshot::Process;
use crate::kubelet::tree::{MemoryTree, Tree};
use crate::rules::lint;
use crate::rules::tests::hosts;
use crate::rules::tests::support::{findings_with, found, kubeadm, says, with_settings};

const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap-kubelet.conf";
const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const YEAR: i64 = 365 * 86_400;

fn file(path: &str, line: u32) -> Location {
    Location::file(path).at_line(line)
}

fn kubeconfig(path: &str, credential: ClientCredential) -> FileState<Kubeconfig> {
    FileState::Present(Kubeconfig {
        at: Location::file(path),
        server: Some("https://10.0.0.1:6443".to_owned()),
        credential,
        certificate: None,
        renewed: None,
        certificate_problem: None,
        files: Vec::new(),
        missing_files: Vec::new(),
        missing_authority: None,
    })
}

/// A kubeconfig with a client certificate of one year that began `age` seconds ago, which is now.
fn with_certificate(age: i64) -> FileState<Kubeconfig> {
    let path = CURRENT.to_owned();
    let mut found = kubeconfig(KUBECONFIG, ClientCredential::CertificateFile { path });
    if let FileState::Present(found) = &mut found {
        found.certificate = Some(Certificate {
            at: Location::file(CURRENT),
            common_name: Some("system:node:node-1".to_owned()),
            not_before_secs: NOW - age,
            not_after_secs: NOW - age + YEAR,
        });
    }
    found
}

const NOW: i64 = 1_800_000_000;

/// The healthy host, changed.
fn judged(rule: &str, change: impl FnOnce(&mut Snapshot)) -> Vec<String> {
    says(&host(&[], change), rule)
}

fn host(pairs: &[(&str, serde_json::Value, From)], change: impl FnOnce(&mut Snapshot)) -> Snapshot {
    let mut all = vec![
        ("--kubeconfig", KUBECONFIG.into(), From::Flag(file("/u.conf", 2))),
        ("--bootstrap-kubeconfig", BOOTSTRAP.into(), From::Flag(file("/u.conf", 2))),
        ("rotateCertificates", true.into(), From::File(file("/c.yaml", 4))),
    ];
    all.extend(pairs.iter().cloned());
    let overrides = Overrides { now_secs: Some(NOW), ..Overrides::default() };
    let inputs = Inputs { overrides, ..Inputs::default() };
    let mut snapshot = with_settings(&kubeadm(), inputs, &all);
    snapshot.machine.kubeconfig = with_certificate(YEAR / 2);
    snapshot.machine.bootstrap_kubeconfig = FileState::Missing { at: Location::file(BOOTSTRAP) };
    snapshot.config.files = vec![config(ConfigFileState::Read)];
    change(&mut snapshot);
    snapshot
}

fn config(state: ConfigFileState) -> ConfigFile {
    ConfigFile {
        at: Location::file("/var/lib/kubelet/config.yaml"),
        declared: file("/u.conf", 3),
        drop_in: false,
        state,
        document: None,
        comment_lines: std::collections::BTreeSet::new(),
        second_document: None,
    }
}

fn lose_kubeconfig(snapshot: &mut Snapshot) {
    snapshot.machine.kubeconfig = FileState::Missing { at: Location::file(KUBECONFIG) };
}

#[test]
fn a_token_is_no_certificate_to_a_kubelet_with_a_bootstrap_kubeconfig() {
    let with = |credential| judged("AU001", |host| host.machine.kubeconfig = kubeconfig(KUBECONFIG, credential));
    for credential in [ClientCredential::Token, ClientCredential::Exec] {
        let said = with(credential);
        assert!(said[0].contains("has no client certificate") && said[0].contains("exits"), "{said:?}");
    }
    assert_eq!(with(ClientCredential::CertificateData), Vec::<String>::new());
    let can = |host: &mut Snapshot| {
        host.machine.kubeconfig = kubeconfig(KUBECONFIG, ClientCredential::Token);
        host.machine.bootstrap_kubeconfig = kubeconfig(BOOTSTRAP, ClientCredential::Token);
    };
    assert_eq!(judged("AU001", can), Vec::<String>::new());
}

#[test]
fn a_healthy_host_has_no_finding_of_these_families() {
    let all: Vec<String> = findings_with(&kubeadm(), Inputs::default())
        .into_iter()
        .filter(|finding| ["AU", "KN", "NW", "RT"].contains(&&finding.rule[..2]))
        .map(|finding| format!("{} {}", finding.rule, finding.message))
        .collect();
    assert!(all.is_empty(), "{all:?}");
    let lost = kubeadm().without(KUBECONFIG);
    let lost = found(&lost, Inputs::default(), "AU001");
    assert!(lost[0].starts_with("fatal /etc/kubernetes/kubelet.conf: "), "{lost:?}");
}

#[test]
fn a_kubelet_without_any_credentials_exits() {
    let missing = judged("AU001", lose_kubeconfig);
    assert!(missing[0].starts_with("fatal /etc/kubernetes/kubelet.conf: "), "{missing:?}");
    let lost = judged("AU001", |snapshot| {
        if let FileState::Present(found) = &mut snapshot.machine.kubeconfig {
            found.missing_files = vec![CURRENT.to_owned()];
        }
    });
    assert!(lost[0].contains(CURRENT), "{lost:?}");
    let other = judged("AU001", |snapshot| {
        snapshot.machine.kubeconfig = FileState::Bad {
            at: Location::file(KUBECONFIG),
            reason: "is a KubeletConfiguration, not a kubeconfig".to_owned(),
        };
        snapshot.lifecycle = Lifecycle::BeforeFirstStart;
    });
    assert!(other[0].contains("is a KubeletConfiguration, not a kubeconfig"), "{other:?}");
}

#[test]
fn a_kubeconfig_without_its_ca_file_is_no_kubeconfig_without_credentials() {
    let text = String::from_utf8(kubeadm().read_bounded(Path::new(KUBECONFIG), 1 << 20).unwrap()).unwrap();
    let tree = kubeadm().file(KUBECONFIG, text.replace("{server:", "{certificate-authority: pki/ca.crt, server:"));
    let said = found(&tree, Inputs::default(), "AU001");
    assert!(said[0].contains("names the CA file /etc/kubernetes/pki/ca.crt, which does not exist"), "{said:?}");
    assert!(said[0].starts_with("fatal") && !said[0].contains("no credentials"), "{said:?}");
    // An image has the kubeconfig, and gets the CA file when it boots.
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    assert!(found(&tree, before, "AU001").is_empty());
    let there = tree.file("/etc/kubernetes/pki/ca.crt", "x");
    assert!(found(&there, Inputs::default(), "AU001").is_empty());
    let bootstrap = judged("AU001", |snapshot| {
        lose_kubeconfig(snapshot);
        let mut given = kubeconfig(BOOTSTRAP, ClientCredential::Token);
        if let FileState::Present(found) = &mut given {
            found.missing_authority = Some("/ca.crt".to_owned());
        }
        snapshot.machine.bootstrap_kubeconfig = given;
    });
    assert!(bootstrap[0].contains("names the CA file /ca.crt"), "{bootstrap:?}");
}

#[test]
fn a_snap_is_not_told_to_run_kubeadm() {
    let (tree, inputs, expected) = hosts::host("k8s-snap");
    let findings = lint(&hosts::resolved(&tree, inputs, &expected)).findings;
    let finding = findings.iter().find(|finding| finding.rule == "AU001").unwrap();
    assert_eq!(finding.fix.as_deref(), Some(PROVIDE));
}

#[test]
fn a_kubelet_that_can_get_credentials_is_no_finding() {
    assert!(judged("AU001", |_| ()).is_empty());
    let with_token = |snapshot: &mut Snapshot| {
        snapshot.machine.bootstrap_kubeconfig = kubeconfig(BOOTSTRAP, ClientCredential::Token);
    };
    assert!(
        judged("AU001", |snapshot| {
            lose_kubeconfig(snapshot);
            with_token(snapshot);
        })
        .is_empty()
    );
    // EKS: an exec plugin, and no bootstrap.
    assert!(
        judged("AU001", |snapshot| {
            snapshot.machine.kubeconfig = kubeconfig(KUBECONFIG, ClientCredential::Exec);
            snapshot.machine.bootstrap_kubeconfig = FileState::NotAsked;
        })
        .is_empty()
    );
    // Before kubeadm join, on k3s, and with no --kubeconfig at all (AU011 speaks of that).
    for change in [
        (|snapshot| snapshot.lifecycle = Lifecycle::BeforeFirstStart) as fn(&mut Snapshot),
        |snapshot| snapshot.command.launcher = Launcher::K3s,
        |snapshot| snapshot.machine.kubeconfig = FileState::NotAsked,
    ] {
        let found = judged("AU001", |snapshot| {
            lose_kubeconfig(snapshot);
            change(snapshot);
        });
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn a_spoilt_bootstrap_kubeconfig_is_fatal_before_the_join_too() {
    let found = judged("AU001", |snapshot| {
        lose_kubeconfig(snapshot);
        snapshot.lifecycle = Lifecycle::BeforeFirstStart;
        snapshot.machine.bootstrap_kubeconfig = kubeconfig(BOOTSTRAP, ClientCredential::Nothing);
    });
    assert!(found[0].starts_with("fatal /etc/kubernetes/bootstrap-kubelet.conf: "), "{found:?}");
}

fn dated(age: i64, change: impl FnOnce(&mut Snapshot)) -> Vec<String> {
    judged("AU002", |snapshot| {
        snapshot.machine.kubeconfig = with_certificate(age);
        change(snapshot);
    })
}

#[test]
fn an_expired_client_certificate_is_fatal_if_nothing_can_renew_it() {
    let expired = dated(YEAR + 60, |_| ());
    assert!(expired[0].starts_with(&format!("fatal {CURRENT}: ")), "{expired:?}");
    assert!(expired[0].contains("2027-01-15T07:59:00Z"), "{expired:?}");
    let renewable = dated(YEAR + 60, |snapshot| {
        snapshot.machine.bootstrap_kubeconfig = kubeconfig(BOOTSTRAP, ClientCredential::Token);
    });
    assert!(renewable[0].starts_with("warning "), "{renewable:?}");
    let k3s = dated(YEAR + 60, |snapshot| {
        snapshot.command.launcher = Launcher::K3s;
    });
    assert!(k3s[0].starts_with("error "), "{k3s:?}");
    let early = dated(-60, |_| ());
    assert!(early[0].starts_with("error "), "{early:?}");
    let overdue = dated(YEAR / 100 * 95, |_| ());
    assert!(overdue[0].starts_with("warning "), "{overdue:?}");
}

#[test]
fn a_certificate_within_its_life_is_no_finding() {
    assert!(dated(YEAR / 2, |_| ()).is_empty());
    assert!(dated(YEAR / 100 * 95, |snapshot| snapshot.lifecycle = Lifecycle::BeforeFirstStart).is_empty());
    let timeless = dated(YEAR * 2, |snapshot| snapshot.observed.now_secs = None);
    assert_eq!(timeless, ["not checked: the time"]);
    let exec = judged("AU002", |snapshot| {
        snapshot.machine.kubeconfig = kubeconfig(KUBECONFIG, ClientCredential::Exec);
    });
    assert!(exec.is_empty());
}

fn rotation(from: From, change: impl FnOnce(&mut Snapshot)) -> Vec<String> {
    says(&host(&[("rotateCertificates", false.into(), from)], change), "AU003")
}

const DEFAULT: From = From::Default { legacy: false };

#[test]
fn a_certificate_that_nothing_renews_is_a_warning() {
    let set = rotation(From::File(file("/c.yaml", 4)), |_| ());
    assert!(set[0].starts_with("warning /c.yaml:4: ") && set[0].contains("2027-07-16T20:00:00Z"), "{set:?}");
    let default = rotation(DEFAULT, |_| ());
    assert!(default[0].starts_with("warning /var/lib/kubelet/config.yaml: "), "{default:?}");
    let legacy = rotation(From::Default { legacy: true }, |snapshot| {
        snapshot.config.files.clear();
    });
    assert!(
        legacy[0].starts_with("warning /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7: "),
        "{legacy:?}"
    );
}

#[test]
fn who_renews_otherwise_is_left_in_peace() {
    assert!(judged("AU003", |_| ()).is_empty());
    let exec = rotation(DEFAULT, |snapshot| {
        snapshot.machine.kubeconfig = kubeconfig(KUBECONFIG, ClientCredential::Exec);
    });
    assert!(exec.is_empty());
    assert!(rotation(DEFAULT, |snapshot| snapshot.command.launcher = Launcher::Rke2).is_empty());
    assert!(rotation(DEFAULT, lose_kubeconfig).is_empty());
    let misspelt = rotation(DEFAULT, |snapshot| {
        snapshot.config.unknown = vec![UnknownField {
            path: "RotateCertificates".to_owned(),
            at: file("/c.yaml", 26),
            below: None,
            meant: Some("rotateCertificates"),
            duplicate: false,
            since: None,
        }];
    });
    assert!(misspelt.is_empty(), "CF002 says it: {misspelt:?}");
    let to_come = rotation(DEFAULT, |snapshot| {
        snapshot.lifecycle = Lifecycle::BeforeFirstStart;
        snapshot.config.files = vec![config(ConfigFileState::Missing)];
    });
    assert!(to_come[0].starts_with("not checked: "), "{to_come:?}");
}

const ANONYMOUS: &str = "authentication.anonymous.enabled";

fn access(
    rule: &str,
    [anonymous, mode, port]: [serde_json::Value; 3],
    from: &From,
    change: impl FnOnce(&mut Snapshot),
) -> Vec<String> {
    let pairs = [
        (ANONYMOUS, anonymous, from.clone()),
        ("authorization.mode", mode, from.clone()),
        ("readOnlyPort", port, from.clone()),
    ];
    says(&host(&pairs, change), rule)
}

fn open() -> [serde_json::Value; 3] {
    [true.into(), "AlwaysAllow".into(), 10255.into()]
}

fn closed() -> [serde_json::Value; 3] {
    [false.into(), "Webhook".into(), 0.into()]
}

#[test]
fn legacy_defaults_are_named_at_the_command() {
    let from = From::Default { legacy: true };
    let found = |rule| {
        let found = access(rule, open(), &from, |snapshot| {
            snapshot.config.files.clear();
        });
        assert_eq!(found.len(), 1, "{rule}: {found:?}");
        found[0].clone()
    };
    let command = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:7";
    for (rule, severity) in [("AU007", "error"), ("AU008", "error"), ("AU009", "warning")] {
        let found = found(rule);
        assert!(found.starts_with(&format!("{severity} {command}: ")) && found.contains("by default"), "{found}");
    }
}

#[test]
fn what_a_file_or_a_flag_opens_is_closed_where_it_stands() {
    const PATH: &str = "/var/lib/kubelet/config.yaml";
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\nreadOnlyPort: 10255\nauthentication: {anonymous: {enabled: true}}\nauthorization:\n  mode: \"AlwaysAllow\"\nsystemReserved: {memory: 500Mi}\n";
    let tree = kubeadm()
        .file(PATH, text)
        .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--rotate-certificates=false\n")
        .file(
            "/etc/kubernetes/kubelet.conf",
            format!("kind: Config\ncurrent-context: c\ncontexts:\n- {{name: c, context: {{cluster: k, user: u}}}}\nclusters:\n- {{name: k, cluster: {{server: 'https://10.0.0.1:6443'}}}}\nusers:\n- {{name: u, user: {{client-certificate: {CURRENT}}}}}\n"),
        );
    let judge = |tree: &dyn Tree| lint(&resolve(tree, Inputs::default()));
    let plan = plan(&tree, &judge, &|finding| finding.rule.starts_with("AU"));
    let after = |path: &str| plan.files.iter().find(|file| file.path == Path::new(path)).unwrap().after.clone();
    let closed =
        text.replace("10255", "0").replace("enabled: true", "enabled: false").replace("\"AlwaysAllow\"", "Webhook");
    assert_eq!(after(PATH), closed);
    assert_eq!(after("/etc/default/kubelet"), "KUBELET_EXTRA_ARGS=--rotate-certificates=true\n");
    let by_default = tree.file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n");
    let plan = crate::fix::plan(&by_default, &judge, &|finding| finding.rule == "AU003");
    assert_eq!(plan.files[0].after, format!("{text}rotateCertificates: true\n"));
}

#[test]
fn what_is_set_is_named_at_its_line_and_what_is_closed_is_no_finding() {
    let from = From::File(file("/c.yaml", 9));
    for rule in ["AU007", "AU008", "AU009"] {
        let found = access(rule, open(), &from, |_| ());
        assert!(found[0].contains(" /c.yaml:9: "), "{found:?}");
        assert!(access(rule, closed(), &from, |_| ()).is_empty(), "{rule}");
        // `anonymous: {}` with --config: the default of a kubelet with a configuration is closed.
        assert!(access(rule, closed(), &DEFAULT, |_| ()).is_empty(), "{rule}");
    }
    let [anonymous, _, port] = open();
    let found = access("AU007", [anonymous, "Webhook".into(), port], &from, |_| ());
    assert!(found[0].starts_with("warning "), "{found:?}");
}

#[test]
fn defaults_that_are_not_the_users_are_not_judged() {
    let from = From::Default { legacy: true };
    for rule in ["AU007", "AU008", "AU009"] {
        let k3s = |snapshot: &mut Snapshot| snapshot.command.launcher = Launcher::K3s;
        assert!(access(rule, open(), &from, k3s).is_empty(), "{rule}");
        let script = access(rule, open(), &from, |snapshot| {
            snapshot.command.launcher = Launcher::Script;
        });
        assert_eq!(script, ["not checked: the kubelet's command line"]);
        let before = access(rule, open(), &DEFAULT, |snapshot| {
            snapshot.lifecycle = Lifecycle::BeforeFirstStart;
            snapshot.config.files = vec![config(ConfigFileState::Missing)];
        });
        assert!(before[0].starts_with("not checked: the kubelet's configuration"), "{before:?}");
    }
}

const SERVER: &str = "/var/lib/kubelet/pki/kubelet-server-current.pem";

fn serving(found: FileState<Certificate>, age_secs: Option<u64>) -> Vec<String> {
    let from = From::File(file("/c.yaml", 12));
    let pairs = [("serverTLSBootstrap", true.into(), from)];
    let snapshot = host(&pairs, |snapshot| {
        snapshot.machine.serving_certificate = found;
        snapshot.observed.process = Some(Process { age_secs, ..Process::default() });
    });
    says(&snapshot, "AU010")
}

#[test]
fn a_serving_certificate_that_does_not_come_is_a_warning() {
    let missing = || FileState::Missing { at: Location::file(SERVER) };
    let found = serving(missing(), Some(900));
    assert!(found[0].starts_with("warning /var/lib/kubelet/pki/kubelet-server-current.pem: "), "{found:?}");
    assert!(serving(missing(), Some(100)).is_empty());
    assert_eq!(serving(missing(), None), ["not checked: the age of the running kubelet"]);
    assert!(serving(FileState::NotAsked, Some(900)).is_empty());
}

#[test]
fn an_expired_serving_certificate_is_a_warning() {
    let until = |not_after_secs| {
        FileState::Present(Certificate {
            at: Location::file(SERVER),
            common_name: None,
            not_before_secs: 0,
            not_after_secs,
        })
    };
    let found = serving(until(NOW - 1), None);
    assert!(found[0].starts_with("warning ") && found[0].contains("2027-01-15"), "{found:?}");
    assert!(serving(until(NOW + 1), None).is_empty());
}

#[test]
fn a_kubelet_without_a_kubeconfig_is_standalone() {
    use crate::rules::tests::support::DROP_IN;
    assert!(found(&kubeadm(), Inputs::default(), "AU011").is_empty());
    let mask = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf";
    let masked = found(&kubeadm().link(mask, "/dev/null"), Inputs::default(), "SD010");
    assert!(masked[0].starts_with(&format!("error {DROP_IN}:1: ")) && masked[0].contains(mask), "{masked:?}");
    assert!(masked[0].contains("runs without --kubeconfig"), "{masked:?}");
    let unset = "[Service]\nUnsetEnvironment=KUBELET_KUBECONFIG_ARGS\n";
    let unset = kubeadm().file("/etc/systemd/system/kubelet.service.d/20-own.conf", unset);
    assert!(found(&unset, Inputs::default(), "SD024")[0].contains("runs without --kubeconfig"));
    assert!(found(&unset, Inputs::default(), "AU011").is_empty(), "one mistake is one finding");
    let bare = found(&kubeadm().without(DROP_IN), Inputs::default(), "AU011");
    assert!(bare[0].starts_with("warning "), "{bare:?}");
}

#[test]
fn a_start_depends_on_the_kubeconfigs_own_certificate() {
    let expire = |snapshot: &mut Snapshot, renewed: bool| {
        snapshot.machine.kubeconfig = with_certificate(YEAR + 1);
        if let (FileState::Present(found), FileState::Present(other)) =
            (&mut snapshot.machine.kubeconfig, with_certificate(YEAR / 2))
        {
            found.renewed = other.certificate.filter(|_| renewed);
        }
    };
    let hidden = judged("AU002", |snapshot| expire(snapshot, true));
    assert!(hidden[0].starts_with("fatal") && hidden[0].contains(CURRENT), "{hidden:?}");
    // Without --bootstrap-kubeconfig the kubelet takes the renewed one without a look at the other.
    let mut alone = host(&[("--bootstrap-kubeconfig", "".into(), From::Flag(file("/u.conf", 2)))], |_| ());
    expire(&mut alone, true);
    assert!(says(&alone, "AU002").is_empty());
    alone.settings.0.insert("rotateCertificates".to_owned(), alone.settings.get("registerNode").cloned().unwrap());
    alone.settings.0.get_mut("rotateCertificates").unwrap().value = false.into();
    expire(&mut alone, false);
    assert!(says(&alone, "AU002")[0].starts_with("error"), "it runs, and the API server refuses it");
}

#[test]
fn a_kubeconfig_that_is_there_must_be_usable_before_the_first_start_too() {
    let before = || Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    let fatal = |tree: &MemoryTree| found(tree, before(), "AU001").join("|");
    assert_eq!(fatal(&kubeadm().without(KUBECONFIG)), "", "kubeadm join is still to come");
    let text = "kind: Config\ncurrent-context: c\ncontexts:\n- {name: c, context: {cluster: k, user: u}}\nclusters:\n- {name: k, cluster: {server: 'https://a:1'}}\nusers:\n- {name: other, user: {token: x}}\n";
    let nobody = fatal(&kubeadm().file(KUBECONFIG, text));
    assert!(nobody.starts_with("error") && nobody.contains("the user of the current context"), "it runs: {nobody}");
    let template = text.replace("{server:", "{certificate-authority-data: '${CA}', server:");
    let bootstrap = kubeadm().without(KUBECONFIG).file(BOOTSTRAP, template.clone());
    for (tree, place) in [(kubeadm().file(KUBECONFIG, template), KUBECONFIG), (bootstrap, BOOTSTRAP)] {
        let one = findings_with(&tree, Inputs::default()).into_iter().find(|one| one.rule == "AU001").unwrap();
        let fix = one.fix.unwrap();
        assert!(fix.contains(&format!(" at {place}:6")) && fix.contains(". Or on a control"), "{fix}");
    }
    let dangling = kubeadm().without("/var/lib/kubelet/pki/kubelet-client-current.pem");
    assert!(fatal(&dangling).contains("kubelet-client-current.pem"), "{}", fatal(&dangling));
}
