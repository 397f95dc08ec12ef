//! What the fuzz targets do with their input: what `nodevigil check` does with it, and what must hold of the result.

use kubelet_config::{
    kubelet::{
        location::Location,
        resolve::{Inputs, Overrides, resolve},
        systemd::env_file,
        tree::MemoryTree,
    },
    rules,
};

/// The kubelet's unit.
const UNIT: &str = "/etc/systemd/system/kubelet.service";

/// Resolves and judges a host; a panic is a finding.
fn check(tree: &MemoryTree, unit: &str, version: &str) {
    let inputs = Inputs {
        unit: Some(unit.to_owned()),
        version: version.parse().ok(),
        hostname: Some("node-1".to_owned()),
        overrides: Overrides {
            now_secs: Some(1_800_000_000),
            ..Overrides::default()
        },
        ..Inputs::default()
    };
    let snapshot = resolve(tree, inputs);
    let report = rules::lint(&snapshot);
    for finding in &report.findings {
        assert!(
            rules::rules().any(|rule| rule.id == finding.rule),
            "{}",
            finding.rule
        );
        assert!(!finding.message.is_empty());
        is_sound(&finding.at);
    }
    for word in &snapshot.command.args {
        is_sound(&word.declared);
        is_sound(word.at());
    }
    let count = report.findings.len();
    let parted = rules::allow::part(tree, report.findings);
    assert_eq!(parted.findings.len() + parted.allowed.len(), count);
}

/// A column stands in a line, a line in a file.
fn is_sound(location: &Location) {
    assert!(!location.file.is_empty());
    assert!(location.column == 0 || location.line > 0, "{location:?}");
}

/// A unit file, and a drop-in after it (a NUL NUL parts them).
pub fn unit(bytes: &[u8]) {
    let middle = bytes.windows(2).position(|pair| pair == [0, 0]);
    let (fragment, drop_in) = bytes.split_at(middle.unwrap_or(bytes.len()));
    let tree = MemoryTree::new()
        .file(UNIT, fragment)
        .file(
            format!("{UNIT}.d/10-x.conf"),
            drop_in.get(2..).unwrap_or_default(),
        )
        .file(
            "/etc/default/kubelet",
            "KUBELET_EXTRA_ARGS=\"--v=2 --node-labels=a=b\"\n",
        );
    check(&tree, "kubelet.service", "1.36.3");
}

/// An environment file, and what it makes of a command line.
pub fn env_file(bytes: &[u8]) {
    for version in [252, 255] {
        let parsed = env_file::parse(
            &Location::file("/etc/default/kubelet"),
            bytes,
            version,
        );
        for assignment in &parsed.assignments {
            assert!(!assignment.name.is_empty() && !assignment.name.contains('='));
            assert!(assignment.marks.is_sorted_by_key(|(offset, _)| *offset));
        }
    }
    let tree = MemoryTree::new()
        .file(
            UNIT,
            "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $A ${B} $KUBELET_EXTRA_ARGS\n",
        )
        .file("/etc/default/kubelet", bytes);
    check(&tree, "kubelet.service", "1.36.3");
}

/// A command line: words, quotes, escapes, specifiers, variables.
pub fn exec_start(bytes: &[u8]) {
    let mut unit =
        b"[Service]\nEnvironment=\"A=--x y\" 'B=\"q' C=\nExecStart=/usr/bin/kubelet ".to_vec();
    unit.extend(bytes.iter().filter(|byte| **byte != b'\n'));
    unit.push(b'\n');
    let tree = MemoryTree::new().file(UNIT, unit);
    check(&tree, "kubelet.service", "1.36.3");
}

/// A `KubeletConfiguration`, and a drop-in of it.
pub fn kubelet_config(bytes: &[u8]) {
    let tree = MemoryTree::new()
        .file(
            UNIT,
            "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubelet.d --kubeconfig=/k --eviction-hard=memory.available<5%\n",
        )
        .file("/var/lib/kubelet/config.yaml", bytes)
        .file("/etc/kubelet.d/10-x.conf", bytes);
    for version in ["1.29.1", "1.36.3"] {
        check(&tree, "kubelet.service", version);
    }
}

/// The configuration of k3s and RKE2, and an arguments file of `MicroK8s`.
pub fn k3s_config(bytes: &[u8]) {
    let tree = MemoryTree::new()
        .file(
            "/etc/systemd/system/k3s-agent.service",
            "[Service]\nExecStart=/usr/local/bin/k3s agent --kubelet-arg=v=2\n",
        )
        .file(
            "/etc/rancher/k3s/config.yaml",
            "kubelet-arg:\n- max-pods=50\n",
        )
        .file("/etc/rancher/k3s/config.yaml.d/50-x.yaml", bytes)
        .file(
            "/etc/systemd/system/snap.microk8s.daemon-kubelite.service",
            "[Service]\nExecStart=/usr/bin/snap run microk8s.daemon-kubelite\n",
        )
        .file("/var/snap/microk8s/current/args/kubelet", bytes);
    check(&tree, "k3s-agent.service", "1.33.5+k3s1");
    check(&tree, "snap.microk8s.daemon-kubelite.service", "1.32.0");
}

/// A secret that is put into the input.
const PLANTED: &str = "Wombat7inTheYard";

/// A text that is to be shown.
pub fn hide_secrets(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // libFuzzer makes inputs of what it sees compared: in such an input nothing may mark it as a secret.
    if text.contains(PLANTED) {
        return;
    }
    let shown = redact::hide_secrets(&text);
    assert_eq!(shown.chars().count(), text.chars().count());
    let is_kept_or_star = |(before, after): (char, char)| after == before || after == '*';
    assert!(text.chars().zip(shown.chars()).all(is_kept_or_star));
    for planted in [
        format!("{text}\n--token={PLANTED}"),
        format!("{text}\npassword: \"{PLANTED}\""),
        format!("{text}\nAuthorization: Bearer {PLANTED}"),
        format!("{text}\nhttps://user:{PLANTED}@example.com/"),
        format!("{text}\nclient-key-data: {PLANTED}\n{text}"),
    ] {
        let shown = redact::hide_secrets(&planted);
        assert!(!shown.contains(PLANTED), "{shown:?}");
    }
    let short = redact::few_stars(&redact::escape_controls(&shown));
    assert!(short.len() <= 3 * text.len() && !short.contains("****"));
    assert_eq!(
        redact::few_stars(&redact::escape_controls(&short)),
        short,
        "twice is once"
    );
}
