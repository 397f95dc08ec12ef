//! Rows of the table of trust that take a clock that may be set, a reset, or a kernel that is nobody else's.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use super::lab::Lab;
use super::scenarios::POD_UID;
use super::support::trust::row;

type Row = (&'static str, fn(&mut Lab) -> Result<()>);

/// All of them; the reset comes last.
pub(crate) const ALL: [Row; 3] = [
    ("trust-hung-pods", hung_pods),
    ("trust-clock", a_clock_that_is_behind),
    ("trust-reset", a_reset),
];

const KERNEL: &str = "NodeKernelHealthy";
const KILL: &str = "systemctl kill -s KILL --kill-who=main kubelet";

fn stamp(value: &serde_json::Value) -> Result<Timestamp> {
    let text = value.as_str().context("no time")?;
    Ok(text.parse()?)
}

/// Twelve of a pod's tasks, named as if they were the platform's, wait for a device that is suspended, and use the kernel's warnings up.
fn hung_pods(lab: &mut Lab) -> Result<()> {
    lab.be_well()?;
    let from = Instant::now();
    lab.guest.sh(&format!(
        "echo 10 >/proc/sys/kernel/hung_task_warnings; cp /usr/bin/dd /run/systemd-x
         dmsetup --noudevsync suspend --nolockfs volume
         systemd-run -q --slice=kubepods-besteffort-pod{POD_UID}.slice --unit=cri-containerd-volume sh -c \
           'for n in 1 2 3 4 5 6 7 8 9 10 11 12; do /run/systemd-x if=/dev/dm-1 of=/dev/null bs=4096 count=1 skip=$n iflag=direct & done; wait'"
    ))?;
    let told = lab.wait_for(from, KERNEL, |told| told["reason"] == "KernelTaskHung");
    let off = told.and_then(|told| {
        let off = lab.wait_for(from, KERNEL, |told| {
            let message = told["message"].as_str().unwrap_or_default();
            message.contains("hung_task_warnings") || told["reason"] == "KernelHungTaskDetectionOff"
        })?;
        // Longer than the platform's own tasks may hang.
        std::thread::sleep(Duration::from_secs(45));
        let warned = lab.guest.sh("cat /proc/sys/kernel/hung_task_warnings")?;
        ensure!(warned.trim() == "0", "{warned}");
        let metrics = lab
            .guest
            .run("/usr/bin/guest scrape /run/nodevigil/metrics.sock | grep '^nodevigil_kernel_hung_task_detection'")?;
        let doctor = lab.guest.run("nodevigil doctor 2>&1 | grep -i hung_task")?;
        Ok((told, off, metrics, doctor))
    });
    let mended = lab.guest.sh(
        "dmsetup --noudevsync resume volume; echo -1 >/proc/sys/kernel/hung_task_warnings; systemctl stop cri-containerd-volume || true",
    );
    let ((told, _), (off, _), metrics, doctor) = off?;
    mended?;
    ensure!(
        told["status"] == "True" && off["status"] == "True",
        "{told} {off}"
    );
    lab.ensure_never_false(from, KERNEL)?;
    ensure!(!metrics.is_empty(), "no metric of the detection");
    ensure!(!doctor.is_empty(), "doctor says nothing of the detection");
    row(
        6,
        "twelve tasks of a pod, named systemd-x, hang on a suspended device",
        "False, KernelDeadlocked",
        "True, KernelTaskHung (Warning)",
    );
    row(
        8,
        "the kernel's warnings of hung tasks are used up by them",
        "nothing is said",
        &format!(
            "True, KernelHungTaskDetectionOff (Warning); `{}`; doctor: `{}`",
            metrics.trim(),
            doctor.trim()
        ),
    );
    detection_off(lab)
}

fn detection_off(lab: &mut Lab) -> Result<()> {
    lab.guest
        .sh("echo 0 >/proc/sys/kernel/hung_task_timeout_secs")?;
    let from = Instant::now();
    let off = lab.wait_for(from, KERNEL, |told| {
        told["message"]
            .as_str()
            .is_some_and(|text| text.contains("hung_task_timeout_secs"))
    });
    lab.guest
        .sh("echo 10 >/proc/sys/kernel/hung_task_timeout_secs")?;
    let (off, _) = off?;
    ensure!(off["status"] == "True", "{off}");
    row(
        8,
        "kernel.hung_task_timeout_secs=0",
        "nothing is said",
        "True, KernelHungTaskDetectionOff (Warning)",
    );
    lab.be_well()
}

/// The clock is forty minutes behind before the agent starts, and stays so.
fn a_clock_that_is_behind(lab: &mut Lab) -> Result<()> {
    lab.be_well()?;
    lab.guest.sh(
        "systemctl stop nodevigil; date -s @$(($(date +%s) - 2400)) >/dev/null; systemctl start nodevigil",
    )?;
    lab.be_well()?;
    let (from, before) = (Instant::now(), Timestamp::now());
    lab.guest.sh(KILL)?;
    let told = lab.wait_for(from, "KubeletHealthy", |told| told["status"] == "False");
    let after = Timestamp::now();
    let clock = lab.guest.sh("date +%s");
    lab.guest.sh("systemctl stop nodevigil; date -s @$(($(date +%s) + 2400)) >/dev/null; systemctl start nodevigil")?;
    let (told, _) = told?;
    let since = stamp(&told["lastTransitionTime"])?;
    let behind = after.as_second() - clock?.trim().parse::<i64>()?;
    ensure!(behind > 2300, "the guest's clock is only {behind} s behind");
    let (early, late) = (before.as_second() - 2, after.as_second() + 1);
    ensure!(
        (early..=late).contains(&since.as_second()),
        "{early} to {late}: {told}"
    );
    row(
        5,
        "the node's clock is 40 minutes behind, and the kubelet is killed",
        "False since 40 minutes before the kill",
        &format!(
            "False, {}, since {} s after the kill",
            told["reason"].as_str().unwrap_or_default(),
            since.as_second() - before.as_second()
        ),
    );
    lab.be_well()
}

/// A reset while the kubelet was killed for good: a kind of trouble that no boot leaves behind.
fn a_reset(lab: &mut Lab) -> Result<()> {
    lab.be_well()?;
    let from = Instant::now();
    lab.guest.sh(&format!(
        "printf '[Service]\\nRestart=no\\n' >/run/systemd/system/kubelet.service.d/90-dead.conf; systemctl daemon-reload; {KILL}"
    ))?;
    let (old, _) = lab.wait_for(from, "KubeletHealthy", |told| told["status"] == "False")?;
    let oops = super::by_hand::lock_up(lab)
        .and_then(|()| lab.wait_for(from, KERNEL, |told| told["reason"] == "KernelLockedUp"));
    let (locked, _) = oops?;
    lab.guest.sh("sync; sleep 2; sync")?;
    let from = Instant::now();
    lab.guest.reset()?;
    let (kernel, took) = lab.wait_for(from, KERNEL, |told| told["reason"] != "KernelLockedUp")?;
    let (kubelet, _) = lab.wait_for(from, "KubeletHealthy", |told| told["status"] != "False")?;
    ensure!(
        kernel["lastTransitionTime"] != locked["lastTransitionTime"],
        "{kernel}"
    );
    ensure!(
        kubelet["lastTransitionTime"] != old["lastTransitionTime"],
        "{kubelet}"
    );
    let up = lab.guest.sh("cut -d' ' -f1 /proc/uptime")?;
    row(
        14,
        "the node is reset while KernelLockedUp and the kubelet's death stand",
        "False, adopted with its old time, for a minute more",
        &format!(
            "{}, {}: {:.0} s after the reset, by the agent's first write (uptime then below {} s); nothing of the old time",
            kernel["status"].as_str().unwrap_or_default(),
            kernel["reason"].as_str().unwrap_or_default(),
            took.as_secs_f64(),
            up.trim()
        ),
    );
    Ok(())
}
