use super::*;
use crate::kubelet::tree::MemoryTree;

const V2: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n    SystemdCgroup = true\n";
const V3: &str =
    "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\nSystemdCgroup = true\n";

fn of(tree: &MemoryTree, version: Option<&str>) -> Runtime {
    read(tree, Path::new(DEFAULT_CONFIG), version, true)
}

fn main_file(text: &str) -> MemoryTree {
    MemoryTree::new().file(DEFAULT_CONFIG, text)
}

fn driver(text: &str, version: Option<&str>) -> Option<(bool, String)> {
    let driver = of(&main_file(text), version).systemd_cgroup?;
    Some((driver.value, driver.at.to_string()))
}

#[test]
fn each_schema_has_its_own_section() {
    let at = |line| Some((true, format!("{DEFAULT_CONFIG}:{line}")));
    let default = Some((false, DEFAULT_CONFIG.to_owned()));
    let v1 = "[plugins.cri.containerd.runtimes.runc.options]\nSystemdCgroup = true\n";
    assert_eq!(driver(v1, Some("1.5.0")), at(2));
    assert_eq!(driver(V2, None), at(5));
    assert_eq!(driver(V3, None), at(3));
    // The usual mistakes: the section of one schema in a file of another.
    let without_version = V2.replace("version = 2", "");
    assert_eq!(driver(&without_version, Some("1.7.27")), default);
    assert_eq!(driver(&without_version, Some("2.0.0")), at(5));
    assert_eq!(driver(&without_version, None), None);
    assert_eq!(driver(&V2.replace("version = 2", "version = 3"), None), default);
    assert_eq!(driver(&V3.replace("version = 3", "version = 2"), Some("1.7.2")), default);
}

#[test]
fn the_default_runtime_is_asked() {
    let nvidia = V2.replace(
        "version = 2\n",
        "version = 2\nplugins.\"io.containerd.grpc.v1.cri\".containerd.default_runtime_name = \"nvidia\"\nplugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.runtime_type = \"io.containerd.runc.v2\"\n",
    );
    assert_eq!(driver(&nvidia, None), Some((false, DEFAULT_CONFIG.to_owned())));
    // Of other runtimes nothing is known.
    assert_eq!(
        driver(
            &nvidia.replace(
                "nvidia.runtime_type = \"io.containerd.runc.v2\"",
                "nvidia.runtime_type = \"io.containerd.kata.v2\""
            ),
            None
        ),
        None
    );
}

#[test]
fn no_file_means_the_defaults_of_an_installed_containerd() {
    let found = of(&MemoryTree::new(), None);
    assert!(!found.systemd_cgroup.unwrap().value);
    let unknown = read(&MemoryTree::new(), Path::new(DEFAULT_CONFIG), None, false);
    assert_eq!(unknown.systemd_cgroup, None);
}

#[test]
fn imports_replace_a_section_in_1_x_and_are_merged_in_2_x() {
    let main = format!("imports = ['conf.d/*.toml', '/etc/extra.toml']\n{V2}");
    let tree = main_file(&main)
        .file(
            "/etc/containerd/conf.d/a.toml",
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = '/etc/cni/a'\n",
        )
        .file("/etc/extra.toml", "version = 2\nimports = ['/etc/containerd/config.toml']\n");
    let old = of(&tree, Some("1.7.27"));
    assert!(!old.systemd_cgroup.unwrap().value);
    let new = of(&tree, Some("2.1.4"));
    assert_eq!(new.systemd_cgroup.unwrap().at.to_string(), "/etc/containerd/config.toml:6");
    let unknown = of(&tree, None);
    assert_eq!(unknown.systemd_cgroup, None);
    assert_eq!(unknown.cni_conf_dir.unwrap().value, "/etc/cni/a");
    assert!(unknown.is_whole);
}

#[test]
fn a_missing_import_is_a_problem_and_leaves_the_driver_open() {
    let found = of(&main_file("version = 2\nimports = ['/etc/none.toml']\n"), None);
    assert_eq!(found.systemd_cgroup, None);
    assert!(!found.is_whole && found.cri_disabled.is_none(), "another program may still write it");
}

#[test]
fn what_containerd_cannot_load_keeps_it_from_starting() {
    let of_release =
        |text: &str, release| of(&main_file(text), release).cri_disabled.map(|found| (found.value, found.at.line));
    let stops = |text: &str| of_release(text, Some("1.7.20"));
    assert_eq!(of_release("version = 2\npassword = s3cret\n", None), Some(("TOML", 2)));
    let imported = main_file("imports = ['/a.toml']\n").file("/a.toml", "[plugins\n");
    assert_eq!(of(&imported, None).cri_disabled.unwrap().at.to_string(), "/a.toml:1");
    // containerd 1.6.20: `invalid plugin key URI "cri" expect io.containerd.x.vx`.
    for name in ["cri", "linux", "io.containerd.grpc"] {
        let text = format!("version = 2\n[plugins.'{name}'.x]\n");
        assert_eq!(stops(&text), Some(("plugins", 2)), "{name}");
        // Since 2.0 `ValidateVersion` looks at no table.
        assert_eq!([Some("2.1.0"), None].map(|release| of_release(&text, release)), [None, None]);
    }
    // Before 1.7.0 it counts the parts alone.
    let linux = "version = 2\n[plugins.'containerd.runtime.v1.linux']\n";
    assert_eq!(
        [Some("1.6.20"), Some("1.7.27")].map(|release| of_release(linux, release)),
        [None, Some(("plugins", 2))]
    );
    for list in ["disabled_plugins", "required_plugins"] {
        let text = format!("version = 2\n{list} = ['io.containerd.grpc.v1.x', 'restart']\n");
        for release in [None, Some("1.7.20"), Some("2.1.0")] {
            assert_eq!(of_release(&text, release), Some(("plugins", 2)), "{list} {release:?}");
            assert_eq!(of_release(&text.replace("version = 2", ""), release), None, "{list} {release:?}");
        }
    }
    for sound in ["[plugins.cri]\n", "version = 2\n[proxy_plugins.soci]\n", V2] {
        assert_eq!(stops(sound), None, "{sound}");
    }
}

#[test]
fn the_parser_of_1_x_takes_letters_that_2_x_refuses() {
    let stops =
        |text: &str, release| of(&main_file(text), release).cri_disabled.map(|found| (found.value, found.at.line));
    // containerd 1.6.20 loads each, and 2.4.2 none.
    for text in ["version = 2\n# \u{7}\n", "\nversion = 02\n"] {
        assert_eq!([Some("1.6.20"), None].map(|release| stops(text, release)), [None, None], "{text:?}");
        assert_eq!(stops(text, Some("2.1.4")), Some(("TOML", 2)), "{text:?}");
    }
    let latin = MemoryTree::new().file(DEFAULT_CONFIG, b"\n# caf\xe9\nversion = 2\n");
    let stopped = |release| of(&latin, Some(release)).cri_disabled.map(|found| (found.value, found.at.line));
    assert_eq!([stopped("1.6.20"), stopped("2.1.4")], [None, Some(("UTF-8", 2))]);
    assert_eq!(stops("\n# an editor's caf\u{FFFD}\nversion = 2\n", Some("2.1.4")), None);
    let marked = format!("\u{FEFF}{V2}");
    assert_eq!([Some("1.6.20"), Some("2.1.4")].map(|release| stops(&marked, release)), [None, Some(("UTF-8", 1))]);
    assert_eq!(stops("[a\n", Some("1.6.20")), Some(("TOML", 1)));
}

#[test]
fn a_release_takes_the_versions_that_it_knows() {
    for (version, release, is_taken) in [
        (3, "1.6.31", true),
        (3, "1.6.32", false),
        (3, "1.7.16", true),
        (3, "1.7.17", false),
        (2, "1.7.27", true),
        (3, "2.0.0", true),
        (4, "2.2.5", false),
        (4, "2.3.0", true),
        (4, "2.4.0", true),
        (5, "2.4.0", false),
        (9, "2.9.0", true),
    ] {
        let stops = of(&main_file(&format!("\nversion = {version}\n")), Some(release)).cri_disabled;
        assert_eq!(stops.map(|found| found.at.line), (!is_taken).then_some(2), "{version} {release}");
    }
}

#[test]
fn the_cri_plugin_may_be_disabled_under_any_of_its_names() {
    let disabled =
        |text: &str, version| of(&main_file(text), version).cri_disabled.map(|found| (found.at.line, found.at.column));
    assert_eq!(disabled("disabled_plugins = [\"cri\"]\n", None), Some((1, 21)));
    let grpc = "version = 2\ndisabled_plugins = [\n  'x',\n  'io.containerd.grpc.v1.cri']\n";
    assert_eq!(disabled(grpc, None), Some((4, 3)));
    let v3 = "version = 3\ndisabled_plugins = ['io.containerd.cri.v1.runtime']\n";
    assert_eq!(disabled(v3, None), Some((2, 21)));
    assert_eq!(disabled("version = 2\ndisabled_plugins = []\n", None), None);
    // Schema 1 knows short names alone.
    let short = "disabled_plugins = ['io.containerd.grpc.v1.cri']\n";
    assert_eq!(disabled(short, Some("1.6.1")), None);
}

#[test]
fn a_driver_that_does_not_count_is_told_with_the_reason() {
    let why = |text: &str, version: &str| {
        let tree = MemoryTree::new().file(DEFAULT_CONFIG, text);
        read(&tree, Path::new(DEFAULT_CONFIG), Some(version), true).idle_driver.map_or(String::new(), |idle| idle.value)
    };
    let table = |name: &str| format!("[plugins.\"{name}\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n");
    assert!(why(&table(GRPC_URI), "1.6.10").contains("no `version = 2`"));
    assert!(why(&format!("version = 3\n{}", table(GRPC_URI)), "2.0.0").contains(RUNTIME_URI));
    assert_eq!(why(&format!("version = 2\n{}", table(GRPC_URI)), "1.7.0"), "");
    let other = table(GRPC_URI).replace("runc.options", "kata.options");
    assert!(why(&format!("version = 2\n{other}"), "1.7.0").contains("belongs to the runtime kata"));
}

#[test]
fn an_old_switch_of_the_plugin_keeps_it_from_starting() {
    let spoilt = |text: &str, version| of(&main_file(text), Some(version)).cri_disabled.map(|found| found.at.line);
    let text = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsystemd_cgroup = true\n";
    assert_eq!(spoilt(text, "1.6.33"), Some(3));
    assert_eq!(spoilt(text, "2.1.0"), None, "containerd 2 has no such key");
    assert_eq!(spoilt(&text.replace("true", "false"), "1.6.33"), None);
    assert_eq!(spoilt(text, "1.2.13"), None, "it is not checked yet");
    for table in ["runtimes.runc", "default_runtime"] {
        let table = format!("[plugins.\"io.containerd.grpc.v1.cri\".containerd.{table}]\n");
        let with = |kind: &str| format!("{text}{table}runtime_type = \"{kind}\"\n");
        assert_eq!(spoilt(&with("io.containerd.runtime.v1.linux"), "1.6.33"), None);
        assert_eq!(spoilt(&with("io.containerd.runc.v2"), "1.6.33"), Some(3));
    }
}

#[test]
fn the_registries_of_an_import_count_as_that_release_merges_them() {
    const V2_MIRRORS: &str = "version = 2\nimports = ['/a.toml']\n[plugins.'io.containerd.grpc.v1.cri'.registry]\nconfig_path = '/certs.d'\nmirrors.'docker.io'.endpoint = ['https://m']\n";
    let refused = |import: &str, version| {
        let tree = main_file(V2_MIRRORS).file("/a.toml", import);
        of(&tree, version).cri_disabled.map(|found| found.at.line)
    };
    // containerd 1 replaces the section, and 2 merges it.
    for (version, line) in [(Some("1.7.27"), None), (Some("2.1.0"), Some(4)), (None, None)] {
        assert_eq!(refused(V2, version), line, "{version:?}");
    }
    let emptied = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.registry]\nconfig_path = ''\n";
    assert_eq!(refused(emptied, Some("2.1.0")), None);
    assert_eq!(refused("version = 2\n", None), Some(4));
}

#[test]
fn a_directory_of_hosts_and_the_older_tls_exclude_each_other() {
    let of_hosts = |key: &str| {
        let registry = "[plugins.'io.containerd.grpc.v1.cri'.registry]\nconfig_path = '/certs.d'\n";
        let text =
            format!("version = 2\n{registry}[plugins.'io.containerd.grpc.v1.cri'.registry.configs.'a.b'.{key}]\n");
        of(&main_file(&text), None).cri_disabled.map(|found| (found.value, found.at.line))
    };
    assert_eq!(of_hosts("tls"), Some(("config_path", 3)));
    assert_eq!(of_hosts("auth"), None);
}
