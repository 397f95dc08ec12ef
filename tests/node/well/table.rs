//! What happens to a node that is well: a row for each disturbance. None of them makes it ill.
//!
//! A blip stays below what docs/promises.md calls a fault: a kubelet that is stopped for two seconds at most, where one that is
//! stopped for longer is rightly `KubeletHung` although its Lease is fresh and its process there; a runtime and a disk that hang for
//! less than three looks. The kubelet alone is cut off for less time than makes its Lease old.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;
use nix::sys::signal::Signal;
use procfs::{Current as _, LoadAverage, sys::kernel::pid_max};

use super::stage::Stage;
use crate::scene::{AGENT, HELPER, KUBELET, SOON};
use crate::support::process::signal;
use crate::support::proxy::Fault;
use crate::support::wait_until;
use Act::{Do, Nothing, Shell};

/// Those of one lane follow one another, those of two happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The node has work.
    Load,
    /// Something is done to it.
    Fault,
}

/// What is done.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Nothing,
    Shell(&'static str),
    Do(fn(&Stage<'_>, &mut Rng) -> Result<()>),
}

impl Act {
    pub(super) fn run(self, stage: &Stage<'_>, rng: &mut Rng) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Shell(command) => stage.sh(command),
            Self::Do(act) => act(stage, rng),
        }
    }
}

/// A disturbance.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) lane: Lane,
    pub(super) begin: Act,
    /// How long it lasts at least and at most; where nothing ends it, how long the node is left alone.
    pub(super) secs: (u64, u64),
    pub(super) end: Act,
}

const fn load(name: &'static str, begin: Act, secs: (u64, u64), end: Act) -> Row {
    Row {
        name,
        lane: Lane::Load,
        begin,
        secs,
        end,
    }
}

const fn fault(name: &'static str, begin: Act, secs: (u64, u64), end: Act) -> Row {
    Row {
        name,
        lane: Lane::Fault,
        begin,
        secs,
        end,
    }
}

/// Every disturbance.
pub(super) const ROWS: &[Row] = &[
    load(
        "pods come and go",
        Do(|stage, rng| stage.pods_come(rng.usize(2..=4))),
        (12, 25),
        Do(|stage, _| stage.pods_go()),
    ),
    load(
        "processors taken, half of one",
        Shell(SPIN),
        (15, 30),
        Shell("systemctl stop 'spins-*'"),
    ),
    load(
        "memory and disk pressed, 48 MiB",
        Shell(PRESS),
        (15, 30),
        Shell("systemctl stop presses; rm -f /srv/kubelet/presses"),
    ),
    load(
        "agent and helper starved, 1 % of a processor",
        Shell("systemctl set-property --runtime nodevigil.slice CPUQuota=1%"),
        (15, 30),
        Shell("systemctl set-property --runtime nodevigil.slice CPUQuota="),
    ),
    fault(
        "agent restarted",
        Shell("systemctl restart nodevigil"),
        (2, 6),
        Nothing,
    ),
    fault(
        "agent killed",
        Do(|stage, _| kill(stage, AGENT)),
        (3, 8),
        Nothing,
    ),
    fault(
        "agent stopped for a moment",
        Do(|stage, rng| stop_for(stage, AGENT, rng.u64(2000..8000))),
        (1, 4),
        Nothing,
    ),
    fault(
        "helper killed",
        Do(|stage, _| kill(stage, HELPER)),
        (3, 8),
        Nothing,
    ),
    fault(
        "helper stopped for a moment",
        Do(|stage, rng| stop_for(stage, HELPER, rng.u64(3000..15_000))),
        (1, 4),
        Nothing,
    ),
    fault(
        "our package upgraded",
        Do(|stage, _| stage.upgrade()),
        (2, 6),
        Nothing,
    ),
    fault(
        "the kubelet's package upgraded",
        Shell("dpkg --no-triggers --install /root/test.deb"),
        (4, 8),
        Nothing,
    ),
    fault(
        "kubelet restarted",
        Shell("systemctl restart kubelet"),
        (4, 8),
        Nothing,
    ),
    fault(
        "containerd restarted",
        Shell("systemctl restart containerd"),
        (4, 8),
        Nothing,
    ),
    fault(
        "systemd reloaded and executed anew",
        Shell("systemctl daemon-reload; systemctl daemon-reexec"),
        (2, 5),
        Nothing,
    ),
    fault(
        "paused and resumed",
        Shell("nodevigil pause --for 2m --reason well"),
        (3, 10),
        Shell("nodevigil resume"),
    ),
    fault(
        "bus restarted",
        Shell("systemctl restart dbus"),
        (5, 10),
        Nothing,
    ),
    fault(
        "bus stopped",
        Shell("systemctl stop dbus.socket dbus.service"),
        (3, 12),
        Shell("systemctl start dbus.socket dbus.service"),
    ),
    fault(
        "bus hangs",
        Shell("systemctl kill --kill-who=main --signal=STOP dbus"),
        (3, 15),
        Shell("systemctl kill --kill-who=main --signal=CONT dbus"),
    ),
    fault(
        "API server hangs",
        Do(|stage, _| stage.scene.plane.pause_apiserver()),
        (5, 20),
        Do(|stage, _| stage.scene.plane.resume_apiserver()),
    ),
    fault(
        "API server down",
        Do(|stage, _| {
            stage.scene.plane.stop_apiserver();
            Ok(())
        }),
        (2, 10),
        Do(|stage, _| stage.scene.plane.start_apiserver()),
    ),
    fault(
        "API fails for the agent alone",
        Do(fail),
        (10, 25),
        Do(serve),
    ),
    fault(
        "kubelet cut off from the API",
        Do(|stage, _| stage.cut()),
        (3, 8),
        Do(|stage, _| stage.no_firewall("way")),
    ),
    fault(
        "both cut off from the API",
        Do(cut_both),
        (50, 65),
        Do(mend_both),
    ),
    fault(
        "node's clock hours behind the cluster's, and right again",
        Do(|stage, rng| {
            stage.proxy.set(Some(Fault::DateAhead(rng.u32(60..20_000))));
            Ok(())
        }),
        (12, 25),
        Do(serve),
    ),
    fault(
        "firewall drops healthz",
        Do(|stage, _| healthz(stage, "drop")),
        (6, 20),
        Do(|stage, _| stage.no_firewall("healthz")),
    ),
    fault(
        "firewall resets healthz",
        Do(|stage, _| healthz(stage, "reject with tcp reset")),
        (6, 20),
        Do(|stage, _| stage.no_firewall("healthz")),
    ),
    fault(
        "kubelet stopped for a moment",
        Do(|stage, rng| stop_for(stage, KUBELET, rng.u64(300..2000))),
        (8, 15),
        Nothing,
    ),
    fault(
        "containerd stopped for a moment",
        Do(|stage, rng| stop_for(stage, "containerd.service", rng.u64(2000..9000))),
        (4, 8),
        Nothing,
    ),
    fault(
        "the kubelet's disk hangs for a moment",
        Shell("fsfreeze -f /srv/kubelet; sleep 3; fsfreeze -u /srv/kubelet"),
        (4, 8),
        Nothing,
    ),
    fault(
        "the kubelet's disk full for a moment",
        Shell(
            "dd if=/dev/zero of=/srv/kubelet/fill bs=1M 2>/dev/null; sleep 3; rm /srv/kubelet/fill",
        ),
        (4, 8),
        Nothing,
    ),
    fault(
        "process ids nearly used up",
        Do(pids),
        (6, 15),
        Shell("cat /run/pid_max >/proc/sys/kernel/pid_max"),
    ),
    fault(
        "kubelet starved, 5 % of a processor for five",
        Shell(STARVE),
        (20, 35),
        Shell(FEED),
    ),
];

const SPIN: &str = "systemctl set-property --runtime spins.slice CPUQuota=50%
    for i in 1 2 3 4; do systemd-run -q --unit=spins-$i --slice=spins.slice sh -c 'while :; do :; done'; done";
const PRESS: &str = "systemd-run -q --unit=presses -p MemoryLimit=48M -p MemoryMax=48M -p CPUQuota=25% sh -c \
    'while :; do dd if=/dev/zero of=/srv/kubelet/presses bs=1M count=96 conv=fsync 2>/dev/null; done'";
const STARVE: &str = "systemctl set-property --runtime starving.slice CPUQuota=5%
    for i in 1 2 3 4; do systemd-run -q --unit=starves-$i --slice=starving.slice -p CPUShares=262144 -p CPUWeight=10000 \
    sh -c 'while :; do :; done'; done";
const FEED: &str =
    "systemctl stop 'starves-*'; systemctl set-property --runtime starving.slice CPUQuota=";

/// The limit is that of the node's own PID namespace; the threads are the machine's.
fn pids(stage: &Stage<'_>, _rng: &mut Rng) -> Result<()> {
    let (before, threads) = (pid_max()?, LoadAverage::current()?.max);
    let limit = (threads * 107 / 100).max(600);
    stage.sh(&format!(
        "cat /proc/sys/kernel/pid_max >/run/pid_max; echo {limit} >/proc/sys/kernel/pid_max"
    ))?;
    if pid_max()? != before {
        stage.sh("cat /run/pid_max >/proc/sys/kernel/pid_max")?;
        bail!("this kernel has one pid_max for all PID namespaces: it wants Linux 6.14");
    }
    Ok(())
}

/// Not by systemctl, which on a busy machine would take its time to have it go on.
fn stop_for(stage: &Stage<'_>, unit: &str, millis: u64) -> Result<()> {
    let pid = pid(stage, unit)?;
    let from: Instant = signal(pid, Signal::SIGSTOP)?;
    std::thread::sleep(Duration::from_millis(millis).saturating_sub(from.elapsed()));
    let _ = signal(pid, Signal::SIGCONT); // systemd's watchdog may have ended the agent
    Ok(())
}

fn kill(stage: &Stage<'_>, unit: &str) -> Result<()> {
    signal(pid(stage, unit)?, Signal::SIGKILL).map(drop)
}

/// One that was killed a moment ago is about to be there again.
fn pid(stage: &Stage<'_>, unit: &str) -> Result<i32> {
    wait_until(unit, SOON, || Ok(stage.scene.node.unit_pid(unit).ok()))
}

#[expect(clippy::unnecessary_wraps, reason = "a row's function")]
fn fail(stage: &Stage<'_>, rng: &mut Rng) -> Result<()> {
    let faults = [
        Fault::Refuse,
        Fault::Reset,
        Fault::Hang,
        Fault::HalfOpen,
        Fault::HandshakeHang,
        Fault::Status(401),
        Fault::Status(403),
        Fault::Status(500),
        Fault::Status(503),
        Fault::TooMany,
        Fault::Slow,
        Fault::WrongCa,
        Fault::BrokenJson,
        Fault::NotHttp,
    ];
    stage.proxy.set(rng.choice(faults));
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "a row's function")]
fn serve(stage: &Stage<'_>, _rng: &mut Rng) -> Result<()> {
    stage.proxy.set(None);
    Ok(())
}

fn cut_both(stage: &Stage<'_>, _rng: &mut Rng) -> Result<()> {
    stage.proxy.set(Some(Fault::Hang));
    stage.cut()
}

fn mend_both(stage: &Stage<'_>, rng: &mut Rng) -> Result<()> {
    serve(stage, rng)?;
    stage.no_firewall("way")
}

fn healthz(stage: &Stage<'_>, verdict: &str) -> Result<()> {
    let port = stage.scene.node.ports().healthz;
    stage.firewall("healthz", &format!("input tcp dport {port} {verdict}"))
}
