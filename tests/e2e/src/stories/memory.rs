//! The host's memory, which on these nodes is that of the machine that runs the stories, but for a guest that may use up its own.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::scene::{Condition, ConditionView, Scene};
use crate::support::bare_guest::BareGuest;
use crate::support::watch::NodeWatch;

/// A sampled problem is shown when the Node is two minutes old.
const NOT_YOUNG_ANY_MORE: Duration = Duration::from_secs(125);
/// How long a cgroup is kept at its limit.
const AT_LIMIT_FOR: Duration = Duration::from_secs(30);

/// Takes some 400 MiB a second, and stops before the machine is in danger.
const HOG: &str = r#"
for (;;) {
    open my $info, "<", "/proc/meminfo" or die;
    my ($available_kib) = join("", <$info>) =~ /MemAvailable: *(\d+)/;
    die "less than 1.5 GiB is available\n" if $available_kib < 1.5 * 1024 * 1024;
    push @held, "x" x (64 << 20);
    select(undef, undef, undef, 0.05);
}
"#;
const HOG_UNIT: &str = "[Service]\nExecStart=/usr/bin/perl /etc/hog.pl\nOOMScoreAdjust=1000\n";

/// Takes more than its limit, and is OOM-killed again and again; meanwhile it reads a file that does not fit into the limit.
const LIMITED_UNIT: &str = "\
[Service]
ExecStart=/bin/sh -c 'while :; do cat /var/tmp/large >/dev/null; done & sleep 2; exec tail /dev/zero'
MemoryMax=64M
MemorySwapMax=0
MemoryLimit=64M
OOMScoreAdjust=1000
Restart=always
RestartSec=100ms
StartLimitIntervalSec=0
";

/// Takes all memory but 4 %, and reads a file that does not fit into what is left.
const THRASH: &str = r"
take=$(awk '/MemTotal/ {total = $2} /MemAvailable/ {print int($2 - total * 4 / 100)}' /proc/meminfo)
dd if=/dev/zero bs=${take}K count=1 | sleep 1000 &
for reader in 1 2; do while :; do cat /text >/dev/null; done & done
";
/// Until both Node and guest are two minutes old, and it has thrashed for one; emulation is slow.
const THRASHES_WITHIN: Duration = Duration::from_mins(4);

pub fn memory_that_runs_out_is_reported_before_it_is_used_up(scene: &Scene) -> Result<()> {
    let node =
        scene.healthy_with(|node| node.file("/etc/hog.pl", HOG).file("/etc/systemd/system/hog.service", HOG_UNIT))?;
    let (health, outlook) = (node.condition("NodeMemoryHealthy"), node.condition("MemoryExhaustionImminent"));
    sleep(NOT_YOUNG_ANY_MORE);
    let from = Instant::now();
    node.sh("systemctl start hog")?;
    let imminent = outlook.wait_for(from, "True", "MemoryRunsOut");
    let names_hog = |shown: &Condition| shown.message.contains("perl (pid");
    let named = outlook.wait_until_shown(from, names_hog);
    let killed = Instant::now();
    let state = node.property("hog", "ActiveState");
    node.sh("systemctl kill --signal=KILL hog; systemctl reset-failed hog || true")?;
    let (imminent, named) = (imminent?, named?);
    ensure!(state? == "active", "the hog ended before it was reported");
    ensure!(imminent.message.contains("MiB/s: it is used up in about "), "{imminent:?}");
    ensure!(named.message.contains("growing by ") && named.message.contains("hog.service"), "{named:?}");
    outlook.wait_for(killed, "False", "MemoryIsEnough")?;
    outlook.ensure_only(imminent.at, &["True", "False"])?;
    health.ensure_only(from, &["True"])
}

pub fn a_cgroup_at_its_own_limit_is_not_the_host(scene: &Scene) -> Result<()> {
    let node = scene.healthy_with(|node| node.file("/etc/systemd/system/limited.service", LIMITED_UNIT))?;
    let conditions = ["NodeMemoryHealthy", "MemoryExhaustionImminent"].map(|kind| node.condition(kind));
    let before = [conditions[0].shown()?, conditions[1].shown()?];
    ensure!(before[0].status == "True" && before[1].status == "False", "{before:?}");
    node.sh("head -c 256M /dev/urandom >/var/tmp/large; systemctl start limited")?;
    sleep(AT_LIMIT_FOR);
    let restarts: u32 = node.property("limited", "NRestarts")?.parse()?;
    node.sh("systemctl stop limited; rm /var/tmp/large")?;
    ensure!(restarts > 2, "it was OOM-killed {restarts} times");
    conditions[0].ensure_unchanged(&before[0])?;
    conditions[1].ensure_unchanged(&before[1])
}

pub fn a_host_that_thrashes_is_reported_until_it_has_memory_again(scene: &Scene) -> Result<()> {
    let watch = scene.watch()?;
    let mut guest = BareGuest::boot(scene.plane(), scene.node_name())?;
    thrash(&mut guest, &watch).with_context(|| guest.console())
}

fn thrash(guest: &mut BareGuest, watch: &NodeWatch) -> Result<()> {
    let from = Instant::now();
    let health = ConditionView::new(watch, "NodeMemoryHealthy");
    let outlook = ConditionView::new(watch, "MemoryExhaustionImminent");
    let healthy = health.wait_for(from, "True", "MemoryIsHealthy")?;
    guest.enter(THRASH)?;
    let thrashes = health.wait_longer_for(healthy.at, THRASHES_WITHIN, "False", "MemoryThrashing")?;
    let has = |part: &str| thrashes.message.contains(part);
    ensure!(has("the kernel reads back ") && has("just dropped") && has("dd (pid "), "{thrashes:?}");
    outlook.wait_for(healthy.at, "True", "MemoryRunsOut")?;
    let ended = Instant::now();
    guest.enter("killall dd")?;
    health.wait_for(ended, "True", "MemoryIsHealthy")?;
    outlook.wait_for(ended, "False", "MemoryIsEnough").map(drop)
}
