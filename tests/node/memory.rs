//! Memory on a real node: what the agent sees of it from inside its sandbox, and whom it finds to grow.
//!
//! The host's memory is not exhausted here: the machine is everybody's. What makes the agent look closely is a process that
//! thrashes in its own limit, and lets tasks wait for memory.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::scene::{AGENT, SOON, Scene};
use crate::support::rows::row;
use crate::support::{say, wait_until};
use crate::trial;

const UID: &str = "fe3f7a38-b3f7-48aa-8997-a697ae3d0741";
const MIB: i64 = 1024 * 1024;

/// Who takes the memory is in the log only for whoever wants to know.
const TALKATIVE: &str = "[Service]\nExecStart=\n\
    ExecStart=/usr/bin/nodevigil run --log-level info,nodevigil::agent::memory=debug\n";

/// The folder of the hierarchy that counts memory, and a group in it for a pod as the kubelet's driver cgroupfs makes it.
const GROUPS: &str = r"
M=/sys/fs/cgroup/memory; MAX=memory.limit_in_bytes
if [ ! -d $M ]; then M=/sys/fs/cgroup; MAX=memory.max; fi
group() { # path, limit
  mkdir -p $M/$1
  if [ $MAX = memory.max ]; then
    at=$M; for part in $(echo $1 | tr / ' '); do echo +memory >$at/cgroup.subtree_control; at=$at/$part; done
  fi
  echo $2 >$M/$1/$MAX
}
";

/// Takes 40 MiB a second for as long as the test may need, within its limit, and keeps them.
const HOG: &str = r#"
import sys, time
with open(sys.argv[1], "w") as group:
    group.write("0")
held = []
for _ in range(300):
    held.append(bytearray(b"x" * (4 << 20)))
    time.sleep(0.1)
time.sleep(600)
"#;

/// Reads pages of a file again and again that do not fit into its group's limit.
const THRASH: &str = r#"
import mmap, os, random, sys
file = os.open(sys.argv[2], os.O_RDONLY)
os.sync() # only clean pages are let go
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
with open(sys.argv[1], "w") as group:
    group.write("0")
for _ in range(7):
    if os.fork() == 0:
        break
pages = mmap.mmap(file, 0, prot=mmap.PROT_READ)
while True:
    pages[random.randrange(60 << 20)]
"#;

/// What is read: on a disk of this machine, which the node sees. Its own files are in a tmpfs, whose pages the kernel cannot let go
/// without swap: it would kill whoever has too many, and not let it wait for them.
fn on_disk() -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in("/var/tmp")?;
    let mut bytes = vec![0; 60 << 20];
    fastrand::fill(&mut bytes);
    file.write_all(&bytes)?;
    Ok(file)
}

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("memory::sources", what_can_be_seen_from_inside_the_sandbox),
        trial("memory::grower", the_pod_that_grows_is_found_by_its_name),
    ]
}

/// What doctor says where the agent runs: among its mounts, as its user.
fn doctor_in_the_sandbox(scene: &Scene) -> Result<Vec<Value>> {
    let pid = scene.node.main_pid(AGENT)?;
    let user = "--reuid=nodevigil --regid=nodevigil --clear-groups";
    let (_, text) = scene.node.run(&format!(
        "nsenter --target {pid} --mount setpriv {user} nodevigil doctor --json"
    ))?;
    let all: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    Ok(all["checks"].as_array().context("checks")?.clone())
}

fn what_can_be_seen_from_inside_the_sandbox() -> Result<()> {
    Scene::healthy("memory-sources")?.play(|scene| {
        let status = scene.node.status_json()?;
        ensure!(
            status["stall_triggers"] == true,
            "not armed by the agent's own user: {status:#}"
        );
        let available = || -> Result<i64> {
            let text = scene.node.sh("grep MemAvailable: /proc/meminfo")?;
            let kib = text.split_whitespace().nth(1).context("a number")?;
            Ok(kib.parse::<i64>()? * 1024 / MIB)
        };
        let before = available()?;
        let lines = doctor_in_the_sandbox(scene)?;
        let after = available()?;
        let said = |check: &str| -> Result<String> {
            let line = lines.iter().find(|line| line["check"] == check);
            let line = line.with_context(|| format!("no line `{check}`: {lines:#?}"))?;
            ensure!(line["state"] == "ok", "{line:#}");
            say(&format!("{check}: {}", line["text"]));
            Ok(line["text"].as_str().unwrap_or_default().to_owned())
        };
        let level = said("level")?;
        let seen: i64 = level.split(' ').next().context("a number")?.parse()?;
        let (least, most) = (before.min(after), before.max(after));
        ensure!(
            (least - 256..=most + 256).contains(&seen),
            "{seen} MiB seen, {before} before and {after} after"
        );
        ensure!(said("psi")?.contains("the kernel calls the daemon"));
        let groups = said("cgroups")?;
        ensure!(groups.contains("counts memory: 0 pods, "), "{groups}");
        ensure!(!groups.contains(", 0 other groups"), "{groups}");
        ensure!(
            groups.contains("the pressure of the kubelet's own group can be read"),
            "{groups}"
        );
        Ok(())
    })
}

fn the_pod_that_grows_is_found_by_its_name() -> Result<()> {
    let file = on_disk()?;
    let scene = Scene::healthy_with("memory-grower", |node| {
        let path = "/etc/systemd/system/nodevigil.service.d/talkative.conf";
        node.file(path, TALKATIVE, 0o644)
            .file("/usr/local/lib/hog.py", HOG, 0o644)
            .file("/usr/local/lib/thrash.py", THRASH, 0o644)
    })?;
    scene.play(|scene| {
        // The folder comes after the agent has asked for the names the first time.
        scene.node.sh(&format!(
            "install -d -m 0750 /var/log/pods /var/log/pods/default_hog_{UID}
             {GROUPS}
             group kubepods/burstable/pod{UID}/hog 1500M
             group thrash 8M
             run() {{ # group, program
               systemd-run --quiet --unit=$2 python3 /usr/local/lib/$2.py $M/$1/cgroup.procs {}
             }}
             run thrash thrash
             run kubepods/burstable/pod{UID}/hog hog",
            file.path().display()
        ))?;
        let from = Instant::now();
        let mut said = String::new();
        let found = wait_until("the pod to be found", SOON, || {
            let lines = scene.node.journal(AGENT, &["MESSAGE", "GROWER"])?;
            let told = lines.iter().filter_map(|line| line["GROWER"].as_str());
            said = told.collect::<Vec<_>>().join("\n");
            Ok(said.contains("default/hog").then_some(()))
        });
        say(&format!("who takes the memory: {said}"));
        if found.is_err() {
            let (_, how) = scene.node.run("systemctl status --no-pager hog thrash")?;
            say(&how);
        }
        found?;
        row(
            "a pod grows while tasks wait for memory",
            "40 MiB a second in a pod's control group, another one thrashes in its limit (from the start on)",
            "–",
            from.elapsed(),
        );
        // Memory moves: our watchdog has patience, as long as it does.
        let patience = scene.property(AGENT, "WatchdogUSec")?;
        ensure!(patience == "1min", "{patience}");
        // Nobody of it is a reason to worry: the host has memory.
        scene.ensure_still(&scene.now()?)?;
        scene.node.sh("systemctl stop hog thrash")?;
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    })
}
