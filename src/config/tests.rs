//! Configuration as operators write it, right and wrong.

use std::{
    collections::BTreeSet,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use super::{error::Source, fragment, *};
use crate::{
    desired::{Dialect, taints::Effect},
    health::ConditionType,
};

const ETC: &str = "/etc/nodevigil/config.d";
const RUN: &str = "/run/nodevigil/config.d";
const LIB: &str = "/usr/lib/nodevigil/config.d";

/// A root with these files.
fn host(files: &[(&str, &str, &str)]) -> (TempDir, Root) {
    let folder = TempDir::new().unwrap();
    let root = Root::new(folder.path());
    for (dir, name, text) in files {
        root.create_dir_all(dir).unwrap();
        root.write_atomically(Path::new(dir).join(name), text.as_bytes())
            .unwrap();
    }
    (folder, root)
}

fn load_text(text: &str) -> Result<Settings, String> {
    let (_folder, root) = host(&[(ETC, "10-x.toml", text)]);
    load(&root, &[])
        .map(|(settings, _)| settings)
        .map_err(|error| error.to_string())
}

fn complaint(text: &str) -> String {
    load_text(text).expect_err("this configuration has a fault")
}

fn complaints(texts: &[&str]) -> String {
    texts.iter().map(|text| complaint(text) + "\n").collect()
}

#[test]
fn works_with_no_file() {
    let (_folder, root) = host(&[]);
    let (settings, read) = load(&root, &[]).unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(read, Vec::<PathBuf>::new());
    assert_eq!(settings.kubelet.unit, "kubelet.service");
    assert_eq!(settings.kubelet.healthy_for, Duration::from_mins(1));
}

#[test]
fn a_later_file_wins_key_by_key() {
    let (_folder, root) = host(&[
        (
            ETC,
            "10-a.toml",
            "[kubelet]\nunit = \"a.service\"\nhealthy_for_secs = 1\n",
        ),
        (LIB, "20-b.toml", "[kubelet]\nunit = \"b.service\"\n"),
        (ETC, "ignored.conf", "not toml at all"),
        (ETC, ".hidden.toml", "not toml at all"),
    ]);
    let (settings, read) = load(&root, &[]).unwrap();
    assert_eq!(settings.kubelet.unit, "b.service");
    assert_eq!(settings.kubelet.healthy_for, Duration::from_secs(1));
    let wanted = [
        Path::new(ETC).join("10-a.toml"),
        Path::new(LIB).join("20-b.toml"),
    ];
    assert_eq!(read, wanted);
}

#[test]
fn the_same_name_in_a_higher_folder_masks() {
    let (_folder, root) = host(&[
        (LIB, "10-a.toml", "[kubelet]\nunit = \"lib.service\"\n"),
        (RUN, "10-a.toml", "[kubelet]\nhealthy_for_secs = 5\n"),
        (LIB, "20-b.toml", "[node]\nname = \"b\"\n"),
        (ETC, "20-b.toml", ""),
        (LIB, "30-c.toml", "nonsense that nobody reads"),
    ]);
    symlink("/dev/null", root.join(ETC).join("30-c.toml")).unwrap();
    let (settings, read) = load(&root, &[]).unwrap();
    assert_eq!(settings.kubelet.unit, "kubelet.service", "masked by /run");
    assert_eq!(settings.kubelet.healthy_for, Duration::from_secs(5));
    assert_eq!(settings.node.name, None, "masked by an empty file");
    assert_eq!(read, [Path::new(RUN).join("10-a.toml")]);
}

#[test]
fn only_what_is_given_is_read_and_in_that_order() {
    let (_folder, root) = host(&[
        (ETC, "10-a.toml", "[node]\nname = \"default\"\n"),
        ("/opt", "z.toml", "[kubelet]\nunit = \"z.service\"\n"),
        ("/opt/d", "2.toml", "[kubelet]\nunit = \"two.service\"\n"),
        ("/opt/d", "1.toml", "[kubelet]\nunit = \"one.service\"\n"),
    ]);
    let given = [PathBuf::from("/opt/z.toml"), PathBuf::from("/opt/d")];
    let (settings, read) = load(&root, &given).unwrap();
    assert_eq!(settings.kubelet.unit, "two.service");
    assert_eq!(settings.node.name, None);
    assert_eq!(
        read,
        ["/opt/z.toml", "/opt/d/1.toml", "/opt/d/2.toml"].map(PathBuf::from)
    );
    let missing = load(&root, &[PathBuf::from("/opt/nowhere.toml")]).unwrap_err();
    insta::assert_snapshot!(missing, @"configuration: read /opt/nowhere.toml: No such file or directory (os error 2)");
    assert_eq!(missing.exit_code(), 78);
}

#[test]
fn every_complaint_names_file_line_and_key() {
    insta::assert_snapshot!(complaints(&[
        "\n[kubelet]\nhelthy_for_secs = 3\n",
        "[kubelet]\nunit = 3\n",
        "[kubelet]\n# one\nhealthy_for_secs = \"1m\"\n",
        "kubelet.healthy_for_secs = 3601\n",
        "kubelet.healthy_for_secs = 99999999999999999999\n",
        "[kublet]\nunit = \"x.service\"\n",
        "unit = \"x.service\"\n",
        "[node]\nunit = \"x.service\"\n",
        "[[kubelet]]\nunit = \"x.service\"\n",
        "kubelet = 3\n",
    ]), @r#"
    /etc/nodevigil/config.d/10-x.toml:3: kubelet.helthy_for_secs: unknown key; did you mean healthy_for_secs? (known here: unit, pid_file, healthz_url, healthy_for_secs, start_grace_secs, stop_grace_secs, crash_loop_ends, crash_loop_within_secs, certificate_expiring_hours, lease_stale_secs, starved_cpu_percent, starved_wait_percent, starved_memory_percent)
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.unit: wants text in quotes, as unit = "k3s-agent.service"; found: integer
    /etc/nodevigil/config.d/10-x.toml:3: kubelet.healthy_for_secs: wants a whole number without quotes, as healthy_for_secs = 60; found: string
    /etc/nodevigil/config.d/10-x.toml:1: kubelet.healthy_for_secs: 3601 is out of bounds; wants a whole number of seconds from 0 to 3600
    /etc/nodevigil/config.d/10-x.toml:1: kubelet.healthy_for_secs: out of bounds; wants a whole number of seconds from 0 to 3600
    /etc/nodevigil/config.d/10-x.toml:1: kublet: unknown table; did you mean [kubelet]? (known tables: [node], [kubernetes], [kubelet], [bootstrap], [runtime], [limits], [clock], [storage], [memory], [kernel], [intent], [conditions.TYPE], [reasons.REASON], [taints], [suppression], [events], [metrics])
    /etc/nodevigil/config.d/10-x.toml:1: unit: unknown key; it belongs below [kubelet] (known tables: [node], [kubernetes], [kubelet], [bootstrap], [runtime], [limits], [clock], [storage], [memory], [kernel], [intent], [conditions.TYPE], [reasons.REASON], [taints], [suppression], [events], [metrics])
    /etc/nodevigil/config.d/10-x.toml:2: node.unit: unknown key; it belongs below [kubelet] (known here: name)
    /etc/nodevigil/config.d/10-x.toml:1: kubelet: wants a table: write [kubelet] and its keys below; found: array
    /etc/nodevigil/config.d/10-x.toml:1: kubelet: wants a table: write [kubelet] and its keys below; found: integer
    "#);
}

#[test]
fn syntax_errors_name_file_line_and_key_too() {
    insta::assert_snapshot!(complaints(&[
        "[kubelet]\nunit = kubelet.service\n",
        "[kubelet]\nunit\n",
        "[kubelet\nunit = \"a.service\"\n",
        "[kubelet]\nunit = \"a.service\"\n\nunit = \"b.service\"\n",
        "[kubelet]\nunit = \"a.service\n",
    ]), @r#"
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.unit: not TOML: string values must be quoted, expected literal string
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.unit: not TOML: key with no value, expected `=`
    /etc/nodevigil/config.d/10-x.toml:1: [kubelet]: not TOML: unclosed table, expected `]`
    /etc/nodevigil/config.d/10-x.toml:4: kubelet.unit: not TOML: duplicate key
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.unit: not TOML: invalid basic string, expected `"`
    "#);
    let (_folder, root) = host(&[]);
    root.create_dir_all(ETC).unwrap();
    let path = Path::new(ETC).join("10-x.toml");
    root.write_atomically(&path, b"[node]\nname = \"\xff\"\n")
        .unwrap();
    insta::assert_snapshot!(load(&root, &[]).unwrap_err(), @"/etc/nodevigil/config.d/10-x.toml:2: node.name: not text: a byte that is not UTF-8; save the file as UTF-8");
}

#[test]
fn a_bad_value_says_what_was_wanted() {
    insta::assert_snapshot!(complaints(&[
        "[node]\nname = \"Worker-1\"\n",
        "[node]\nname = \"a..b\"\n",
        "[kubernetes]\nkubeconfig = \"kubeconfig\"\n",
        "[kubelet]\npid_file = \"/run/../x\"\n",
        "[kubelet]\nunit = \"kubelet\"\n",
        "[kubelet]\nunit = \"k3s@.service\"\n",
        "[kubelet]\nunit = \"a/b.service\"\n",
        "[kubelet]\nhealthz_url = \"http://node-1:10248\"\n",
        "[kubelet]\nhealthz_url = \"https://127.0.0.1:10250/healthz\"\n",
        "[kubelet]\nhealthz_url = \"http://127.0.0.1:0/healthz\"\n",
        "[kubelet]\nhealthz_url = \"http://u:p@127.0.0.1/healthz\"\n",
        "[kubelet]\nhealthy_for_secs = -1\n",
    ]), @r#"
    /etc/nodevigil/config.d/10-x.toml:2: node.name: "Worker-1" is not a Node's name (an RFC 1123 subdomain: at most 253 of a-z, 0-9, '-' and '.', each part starting and ending with a letter or digit); write it in lower case: worker-1
    /etc/nodevigil/config.d/10-x.toml:2: node.name: "a..b" is not a Node's name (an RFC 1123 subdomain: at most 253 of a-z, 0-9, '-' and '.', each part starting and ending with a letter or digit); write it as kubectl get nodes shows it
    /etc/nodevigil/config.d/10-x.toml:2: kubernetes.kubeconfig: "kubeconfig" is not an absolute path; write it from / on
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.pid_file: "/run/../x" is not a plain path; write it without .. and control characters
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.unit: "kubelet" is not a systemd service unit such as "kubelet.service"; add .service
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.unit: "k3s@.service" is a template, which never runs; name the instance, as k3s@NAME.service
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.unit: "a/b.service" is not a systemd service unit such as "kubelet.service": '/' cannot stand in it; write it as systemctl shows it
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.healthz_url: "node-1" is a name, and looking it up may block for as long as the resolver hangs; write its IP address, as http://ADDRESS:PORT/healthz, such as http://127.0.0.1:10248/healthz
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.healthz_url: "https://127.0.0.1:10250/healthz" does not start with http:// (the kubelet serves its health without TLS); wants http://ADDRESS:PORT/healthz, such as http://127.0.0.1:10248/healthz
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.healthz_url: "0" is not a port from 1 to 65535; wants http://ADDRESS:PORT/healthz, such as http://127.0.0.1:10248/healthz
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.healthz_url: "http://u:p@127.0.0.1/healthz" holds a user name, which the kubelet never asks for; wants http://ADDRESS:PORT/healthz, such as http://127.0.0.1:10248/healthz
    /etc/nodevigil/config.d/10-x.toml:2: kubelet.healthy_for_secs: -1 is out of bounds; wants a whole number of seconds from 0 to 3600
    "#);
}

#[test]
fn the_health_url_is_made_whole() {
    for (written, wanted) in [
        (
            "http://localhost:10248/healthz",
            "http://127.0.0.1:10248/healthz",
        ),
        ("http://127.0.0.1:10248", "http://127.0.0.1:10248/healthz"),
        ("http://[::1]:10248/", "http://[::1]:10248/healthz"),
        (
            "http://10.0.0.7/livez?verbose",
            "http://10.0.0.7/livez?verbose",
        ),
    ] {
        assert_eq!(values::healthz_url(written).unwrap(), wanted);
    }
    for refused in [
        "127.0.0.1:10248",
        "",
        "http://",
        "http://[fe80::1%eth0]/",
        "http:///x",
        "http://1.2.3.4:99999/",
    ] {
        assert!(values::healthz_url(refused).is_err(), "{refused}");
    }
}

#[test]
fn an_instance_is_a_unit() {
    assert!(values::service_unit_name("kubelet@blue.service").is_ok());
    assert!(values::service_unit_name("snap.k8s.kubelet.service").is_ok());
    assert!(values::service_unit_name(".service").is_err());
    assert!(values::service_unit_name(&format!("{}.service", "a".repeat(250))).is_err());
}

/// What serde itself would accept, from the error that it makes for a name nobody has.
fn fields(text: &str) -> BTreeSet<String> {
    let error = toml::from_str::<fragment::Fragment>(text).unwrap_err();
    let (_, expected) = error
        .message()
        .split_once("expected")
        .expect("serde lists the fields");
    expected
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_key_is_one_row_and_a_table_stands_in_one_place() {
    let rows: BTreeSet<_> = KEYS.iter().map(|key| (key.section, key.name)).collect();
    assert_eq!(rows.len(), KEYS.len());
    let sections = keys::sections();
    let distinct: BTreeSet<_> = sections.iter().collect();
    assert_eq!(distinct.len(), sections.len(), "{sections:?}");
}

#[test]
fn registry_and_reader_agree() {
    // Thresholds are read by the registry alone.
    let keys = || {
        let is_number = |key: &&Key| matches!(key.kind, Kind::Number(..));
        KEYS.iter().filter(move |key| !is_number(key))
    };
    let sections: BTreeSet<_> = keys().map(|key| key.section).collect();
    let top = |section: &str| section.split('.').next().unwrap().to_owned();
    let tops: BTreeSet<_> = sections.iter().map(|section| top(section)).collect();
    assert_eq!(fields("zzz = 1"), tops);
    for section in sections {
        let keys: BTreeSet<_> = keys()
            .filter(|key| key.section == section)
            .map(|key| key.name.to_owned())
            .collect();
        // A reader with one field speaks of it without a list.
        let text = format!("[{section}]\nzzz = 1");
        assert_eq!(fields(&text), keys);
    }
}

#[test]
fn every_key_takes_its_example_and_has_its_default() {
    for key in KEYS {
        let section = key.section.replace("TYPE", "KubeletHealthy");
        let section = section.replace("REASON", "KubeletCrashed");
        let written = |value: &str| format!("[{section}]\n{} = {value}\n", key.name);
        load_text(&written(key.example)).unwrap();
        if let Some(default) = key.default {
            assert_eq!(load_text(&written(default)).unwrap(), Settings::default());
        }
        assert!(key.doc.ends_with('.') && !key.bounds.is_empty(), "{key:?}");
        let name = format!("{section}.{}", key.name);
        let wrong = written(match key.kind {
            Kind::Text => "1",
            Kind::Integer | Kind::Boolean | Kind::Number(..) => "\"\"",
            Kind::List => "[1]",
        });
        assert!(complaint(&wrong).contains(&format!("10-x.toml:2: {name}: ")));
        if let Kind::Number(min, max) = key.kind {
            let refused = [u64::from(max) + 1, u64::MAX];
            let refused = refused.map(|n| n.to_string()).into_iter();
            for value in refused.chain((min > 0).then(|| (min - 1).to_string())) {
                assert!(complaint(&written(&value)).contains(key.bounds));
            }
            assert!(key.bounds.contains(&format!("from {min} to {max}")));
            let settings = load_text(&written(key.example)).unwrap();
            let read = settings.number(key.section, key.name).to_string();
            assert_eq!(read, key.example);
            assert_ne!(
                Some(key.example),
                key.default,
                "{name}: an example of its own"
            );
        }
    }
}

#[test]
fn lines_are_counted_whatever_the_offset() {
    let source = Source::new(Path::new("/x"), "ä\nb");
    assert_eq!([0, 1, 2, 3, 99].map(|at| source.line(at)), [1, 1, 1, 2, 2]);
}

#[test]
fn an_intent_is_checked_like_everything_else() {
    let settings = load_text(
        "[intent]\ncloud_provider = \"external\"\nnode_ip = \"10.0.0.7,fd00::7\"\nnode_labels = \"a=b,c=\"\n",
    )
    .unwrap();
    assert_eq!(settings.intent.cloud_provider.as_deref(), Some("external"));
    assert_eq!(settings.intent.node_ip.as_deref(), Some("10.0.0.7,fd00::7"));
    let labels: Vec<_> = settings.intent.node_labels.into_iter().collect();
    assert_eq!(
        labels,
        [("a", "b"), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned()))
    );
    let said = complaints(&[
        "[intent]\ncloud_provider = \"hetzner\"\n",
        "[intent]\nnode_ip = \"10.0.0.7,10.0.0.8\"\n",
        "[intent]\nprovider_id = \"hcloud\"\n",
        "[intent]\nnode_labels = \"blue\"\n",
    ]);
    for word in [
        "2: intent.cloud_provider: \"hetzner\"",
        "external",
        "one of each family",
        "hcloud://",
        "KEY=VALUE",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn what_is_told_can_be_chosen() {
    let settings = load_text(
        "[kubernetes]\ndialects = [\"npd\", \"native\"]\npublish = \"none\"\n\
         [conditions.KubeletConfigValid]\npublish = false\n\
         [taints]\nconditions = [\"KubeletHealthy\", \"KubeletConfigValid\"]\neffect = \"NoExecute\"\n\
         prefix = \"health.example.org/nodevigil-\"\n[events]\nper_hour = 0\n",
    )
    .unwrap();
    assert_eq!(settings.choice.dialects, [Dialect::Native, Dialect::Npd]);
    assert!(settings.choice.shadow);
    assert!(!settings.choice.tells(ConditionType::KubeletConfigValid));
    assert_eq!(settings.taints.conditions, [ConditionType::KubeletHealthy]);
    assert_eq!(settings.taints.effect, Effect::NoExecute);
    assert_eq!(settings.events.per_hour, 0);
    insta::assert_snapshot!(complaints(&[
        "[kubernetes]\ndialects = []\n",
        "[kubernetes]\ndialects = [\"gke\"]\n",
        "[kubernetes]\ndialects = \"eks\"\n",
        "[kubernetes]\npublish = \"native\"\n",
        "[conditions.KubeletReady]\npublish = false\n",
        "[conditions.KubeletHealthy]\npublished = false\n",
        "[conditions]\npublish = false\n",
        "conditions = 1\n",
        "[taints]\nprefix = \"example.org/\"\n",
        "[taints]\neffect = \"Evict\"\n",
        "[events]\nper_hour = 3601\n",
    ]), @r#"
    /etc/nodevigil/config.d/10-x.toml:2: kubernetes.dialects: names no dialect; to publish nothing write publish = "none" instead
    /etc/nodevigil/config.d/10-x.toml:2: kubernetes.dialects: "gke" is none of native, eks, npd
    /etc/nodevigil/config.d/10-x.toml:2: kubernetes.dialects: wants texts in quotes, in brackets, as dialects = ["native", "eks"]; found: string
    /etc/nodevigil/config.d/10-x.toml:2: kubernetes.publish: "native" is neither "all" nor "none"; to leave out a single condition write [conditions.TYPE] publish = false
    /etc/nodevigil/config.d/10-x.toml:1: conditions.KubeletReady: not a condition of ours (known here: KubeletHealthy, KubeletConfigValid, ContainerRuntimeHealthy, NodeStorageHealthy, NodeKernelHealthy, NodeMemoryHealthy, MemoryExhaustionImminent, NodeBootstrapped, NodevigilHealthy)
    /etc/nodevigil/config.d/10-x.toml:2: conditions.KubeletHealthy.published: unknown key; did you mean publish? (known here: publish)
    /etc/nodevigil/config.d/10-x.toml:2: conditions.publish: not a condition of ours (known here: KubeletHealthy, KubeletConfigValid, ContainerRuntimeHealthy, NodeStorageHealthy, NodeKernelHealthy, NodeMemoryHealthy, MemoryExhaustionImminent, NodeBootstrapped, NodevigilHealthy)
    /etc/nodevigil/config.d/10-x.toml:1: conditions: wants a table for each condition: [conditions.KubeletHealthy]
    /etc/nodevigil/config.d/10-x.toml:2: taints.prefix: "example.org/" is not a DNS name in lower case followed by /nodevigil-; write it as health.example.org/nodevigil-
    /etc/nodevigil/config.d/10-x.toml:2: taints.effect: "Evict" is not the effect of a taint; wants NoSchedule, PreferNoSchedule or NoExecute
    /etc/nodevigil/config.d/10-x.toml:2: events.per_hour: 3601 is out of bounds; wants a whole number from 0 to 3600
    "#);
}

#[test]
fn each_stage_that_is_waited_for_has_its_key() {
    let of_stages = crate::bootstrap::Stage::ALL
        .into_iter()
        .filter_map(crate::bootstrap::Stage::wait);
    for wait in of_stages {
        let rows = KEYS
            .iter()
            .filter(|key| key.section == "bootstrap" && key.name == wait.key);
        let defaults: Vec<_> = rows.map(|row| row.default).collect();
        assert_eq!(defaults, [Some(wait.default_secs)], "{}", wait.key);
    }
    let settings = load_text("[bootstrap]\nnetwork_secs = 7\n").unwrap();
    assert_ne!(settings.patience(), Settings::default().patience());
}

#[test]
fn a_reason_can_be_told_as_less_if_it_is_one_for_false() {
    use crate::health::{Reason, turned::ToldAs};
    let settings = load_text(
        "[reasons.KubeletCrashed]\nas = \"warning\"\n[reasons.KernelOopsRepeated]\nas = \"off\"\n",
    )
    .unwrap();
    let told: Vec<_> = settings.reasons.into_iter().collect();
    let wanted = [
        (Reason::KubeletCrashed, ToldAs::Warning),
        (Reason::KernelOopsRepeated, ToldAs::Off),
    ];
    assert_eq!(told, wanted);
    insta::assert_snapshot!(complaints(&[
        "[reasons.KubeletCrushed]\nas = \"off\"\n",
        "[reasons.Xyzzy]\nas = \"off\"\n",
        "[reasons.KubeletIsHealthy]\nas = \"off\"\n",
        "[reasons.NodePaused]\nas = \"off\"\n",
        "[reasons.KubeletCrashed]\nas = \"true\"\n",
        "[reasons.KubeletCrashed]\nlike = \"off\"\n",
        "[reasons]\nKubeletCrashed = \"off\"\n",
        "reasons = 1\n",
    ]), @r#"
    /etc/nodevigil/config.d/10-x.toml:1: reasons.KubeletCrushed: not a reason of ours; did you mean KubeletCrashed?
    /etc/nodevigil/config.d/10-x.toml:1: reasons.Xyzzy: not a reason of ours; docs/reference/conditions.md lists them
    /etc/nodevigil/config.d/10-x.toml:1: reasons.KubeletIsHealthy: stands for True, and only a reason for False can be told as less
    /etc/nodevigil/config.d/10-x.toml:1: reasons.NodePaused: stands for Unknown, and only a reason for False can be told as less
    /etc/nodevigil/config.d/10-x.toml:2: reasons.KubeletCrashed.as: "true" is neither "warning" nor "off"
    /etc/nodevigil/config.d/10-x.toml:2: reasons.KubeletCrashed.like: unknown key; remove it (known here: as)
    /etc/nodevigil/config.d/10-x.toml:2: reasons.KubeletCrashed: wants a table: write [reasons.KubeletCrashed] and its keys below; found: string
    /etc/nodevigil/config.d/10-x.toml:1: reasons: wants a table for each reason: [reasons.KubeletCrashed]
    "#);
}
