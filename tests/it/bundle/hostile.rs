//! Trees that lead elsewhere, and trees that are as dear as a tree can be.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Unpacked,
    node::{Tree, node_with_secrets},
};

/// What another host keeps where the tree's links lead.
const ELSEWHERE: &str = "walrusofanotherhost";

#[test]
fn no_link_leads_out_of_the_tree() {
    let outside = Tree::new();
    for path in [
        "/kubelet.log",
        "/machine/system.journal",
        "/status.json",
        "/walrusofanotherhost.json",
        "/pki/walrusofanotherhost.key",
        "/config.toml",
    ] {
        outside.file(path, format!("{{\"a\": \"{ELSEWHERE}\"}}\n"));
    }
    let tree = node_with_secrets();
    for (to, path) in [
        (
            "kubelet.log",
            "/var/lib/rancher/rke2/agent/logs/kubelet.log",
        ),
        ("", "/var/log/journal"),
        ("status.json", "/run/nodevigil/status.json"),
        ("", "/var/lib/nodevigil"),
        ("", "/var/lib/nodevigil-helper"),
        ("config.toml", "/etc/containerd/config.toml"),
        ("config.toml", "/etc/os-release"),
        ("", "/etc/nodevigil/config.d"),
        ("", "/proc"),
    ] {
        let path = tree.path(path);
        fs::remove_file(&path)
            .or_else(|_| fs::remove_dir_all(&path))
            .ok();
        symlink(outside.0.path().join(to), path).unwrap();
    }
    let bundle = Unpacked::of(&tree);
    let found = bundle.holding(ELSEWHERE);
    assert!(found.is_empty(), "{found:#?}");
    let manifest = bundle.text("manifest.json");
    assert!(!manifest.contains(ELSEWHERE), "{manifest}");
    // The same link, where it stays inside.
    tree.file("/kubelet.log", "a line of the tree's own\n");
    let log = tree.path("/var/lib/rancher/rke2/agent/logs/kubelet.log");
    fs::remove_file(&log).unwrap();
    symlink("/kubelet.log", log).unwrap();
    let log = Unpacked::of(&tree).text("journal/rke2-kubelet.log");
    assert_eq!(log, "a line of the tree's own\n");
}

/// The most memory that `bundle` took over a tree, in KiB, and how long.
fn cost(tree: &Tree) -> (u64, Duration) {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_nodevigil"))
        .args(["bundle", "--output=-", "--root"])
        .arg(tree.0.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let row = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = row.and_then(|row| row.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        assert!(begun.elapsed() < Duration::from_mins(3), "it does not end");
        thread::sleep(Duration::from_millis(2));
    }
    (most, begun.elapsed())
}

/// So many lines with secrets that overlap each other everywhere.
fn overlapping(count: usize) -> String {
    let line = |n: usize| {
        format!(
            "token: {}{}\n",
            "a".repeat(6 + n % 500),
            "b".repeat(n / 500)
        )
    };
    (0..count).map(line).collect()
}

/// A tree in which everything is as dear as it can be: secrets that overlap each other everywhere, as many as are kept in mind, and
/// files as long as they are read that hold nothing but them, or that take many times their length once they are parsed.
fn dear_tree(secrets: usize) -> Tree {
    let tree = node_with_secrets();
    tree.file(
        "/var/lib/cloud/instance/user-data.txt",
        overlapping(secrets),
    );
    let a = "a".repeat(1 << 20);
    let log = format!("{}\n", &a[..999]).repeat(1000);
    tree.file("/var/lib/rancher/rke2/agent/logs/kubelet.log", log);
    tree.file("/var/lib/kubelet/config.yaml", &a);
    tree.file(
        "/run/nodevigil/status.json",
        format!("[{}0]", "0,".repeat(500_000)),
    );
    let nested = format!(
        "{}{}0{}",
        "[".repeat(120),
        "0,".repeat(60_000),
        "]".repeat(120)
    );
    tree.file("/run/nodevigil/ledger.json", nested);
    tree.file(
        "/etc/containerd/config.toml",
        many(60_000, |n| format!("a{n}=0\n")),
    );
    tree.file(
        "/etc/default/kubelet",
        many(200_000, |n| format!("A{n}=\n")),
    );
    for n in 0..32 {
        let path = format!("/var/lib/nodevigil/{n}.json");
        tree.file(&path, format!("[\"{a}\"]"));
        tree.file(
            &format!("/etc/containerd/conf.d/{n}.toml"),
            format!("a = \"{}\"\n", &a[..100_000]),
        );
        tree.file(
            &format!("/etc/crio/crio.conf.d/{n}.conf"),
            "\n".repeat(1 << 20),
        );
    }
    tree
}

#[test]
fn no_tree_takes_it_much_memory_or_long() {
    let (usual, _) = cost(&node_with_secrets());
    for secrets in [400, 3_000] {
        let (most, took) = cost(&dear_tree(secrets));
        eprintln!("{secrets} secrets: {} KiB more, {took:?}", most - usual);
        assert!(most < usual + (64 << 10), "{most} KiB, usually {usual}");
        assert!(took < Duration::from_mins(1), "{took:?}");
    }
}

#[test]
fn where_more_is_secret_than_can_be_looked_for_nothing_is_shown() {
    let tree = node_with_secrets();
    let last = "wombatofthelastline";
    let many = overlapping(3_000);
    tree.file(
        "/var/lib/cloud/instance/user-data.txt",
        format!("{many}token: {last}\n"),
    );
    tree.file("/etc/os-release", "NAME=Tree\n");
    tree.file(
        "/var/lib/rancher/rke2/agent/logs/kubelet.log",
        format!("it said {last}\n"),
    );
    let bundle = Unpacked::of(&tree);
    assert!(bundle.holding(last).is_empty());
    assert_eq!(bundle.json("manifest.json")["redaction"]["is_full"], true);
    let row = bundle.row("journal/rke2-kubelet.log");
    assert_eq!(row["state"], "failed");
    assert!(
        row["why"].as_str().unwrap().contains("more secrets"),
        "{row}"
    );
    assert_eq!(bundle.text("host/os-release"), "NAME=Tree\n");
    assert!(
        bundle.stderr.contains("most parts were left out"),
        "{}",
        bundle.stderr
    );
}

fn many(count: u32, line: impl Fn(u32) -> String) -> String {
    (0..count).map(line).collect::<Vec<_>>().concat()
}
