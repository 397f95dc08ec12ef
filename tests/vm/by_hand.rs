//! Faults that take more than a line of shell.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use super::lab::Lab;
use super::loads;
use super::scenarios::POD_UID;
use super::support::{enter, wait_until};

/// A function that runs when `/proc/execdomains` is read, which nobody does.
const FUNCTION: &str = "execdomains_proc_show";
const CALL: &str = "cat /proc/execdomains >/dev/null";
/// `jmp .` and `ud2`.
const ENDLESS: [u8; 2] = [0xeb, 0xfe];
const INVALID: [u8; 2] = [0x0f, 0x0b];
const YEAR_SECS: i64 = 365 * 86_400;

#[expect(clippy::unnecessary_wraps, reason = "a row's function")]
pub(crate) fn nothing(_: &mut Lab) -> Result<()> {
    Ok(())
}

/// Nothing of the kubelet's gets to the API server, by the BPF firewall of its cgroup.
pub(crate) fn cut_off(lab: &mut Lab) -> Result<()> {
    let host = enter::ADDRESS;
    lab.guest.sh(&format!(
        "systemctl set-property --runtime kubelet IPAddressDeny={host}"
    ))?;
    Ok(())
}

pub(crate) fn let_through(lab: &mut Lab) -> Result<()> {
    lab.guest
        .sh("systemctl set-property --runtime kubelet IPAddressDeny=")?;
    Ok(())
}

pub(crate) fn no_listener(lab: &mut Lab) -> Result<()> {
    cut_off(lab)?;
    lab.guest.sh(
        "printf '[kubelet]\\nhealthz_url = \"http://127.0.0.1:10299/healthz\"\\n' >/etc/nodevigil/config.d/70-more.toml
         systemctl restart nodevigil",
    )?;
    Ok(())
}

pub(crate) fn a_listener(lab: &mut Lab) -> Result<()> {
    let_through(lab)?;
    lab.guest
        .sh("rm /etc/nodevigil/config.d/70-more.toml; systemctl restart nodevigil")?;
    Ok(())
}

/// The kubelet's kubeconfig, with a certificate that is good from and to so many seconds from now.
fn credential(lab: &mut Lab, (from, to): (i64, i64)) -> Result<()> {
    let (plane, name) = (&lab.guest.plane, &lab.guest.name);
    let (user, authority) = (format!("system:node:{name}"), plane.authority());
    let now = Timestamp::now().as_second();
    let good = (u64::try_from(now + from)?, u64::try_from(now + to)?);
    let pair = authority.sign_between(&user, &["system:nodes"], good)?;
    let server = format!("https://{}:{}", enter::ADDRESS, plane.port());
    let kubeconfig = authority.kubeconfig_with(&user, &pair, &server);
    lab.guest.sh(&format!(
        "cat >/etc/kubernetes/kubelet.conf <<'END'\n{kubeconfig}\nEND"
    ))?;
    Ok(())
}

pub(crate) fn expired(lab: &mut Lab) -> Result<()> {
    credential(lab, (-YEAR_SECS, -3600))
}

pub(crate) fn early(lab: &mut Lab) -> Result<()> {
    credential(lab, (86_400, YEAR_SECS))
}

pub(crate) fn good_again(lab: &mut Lab) -> Result<()> {
    credential(lab, (-YEAR_SECS, YEAR_SECS))
}

/// The first of these shells ends when it cannot fork; the other only waits.
pub(crate) fn fill_threads(lab: &mut Lab) -> Result<()> {
    lab.guest.sh(
        "mkfifo /run/all; set -- /proc/[0-9]*/task/*; echo $(($# + 150)) >/proc/sys/kernel/threads-max
         systemd-run -q --unit=all -p TasksMax=infinity sh -c '(while :; do sleep 60 & done); read line </run/all'",
    )?;
    Ok(())
}

pub(crate) fn free_threads(lab: &mut Lab) -> Result<()> {
    // Not even this can be started before there is room.
    wait_until("room for a command", Duration::from_mins(3), || {
        let freed = lab
            .guest
            .sh("echo 8000 >/proc/sys/kernel/threads-max && systemctl stop all && rm -f /run/all");
        Ok(freed.ok())
    })
    .map(drop)
}

pub(crate) fn pods_grow(lab: &mut Lab) -> Result<()> {
    lab.guest
        .sh("systemctl set-property --runtime kubepods.slice MemoryMax=200M")?;
    pod(
        lab,
        "grow --mib-per-s 6 --mib 300 --random-bytes 0 --touch-per-s 100 --hold-s 60",
    )
}

fn pod(lab: &mut Lab, arguments: &str) -> Result<()> {
    lab.guest.sh(&format!(
        "mkdir -p /var/log/pods/shop_hog_{}/hog
         systemd-run -q --collect --slice=kubepods-besteffort-pod{POD_UID}.slice --unit=cri-containerd-hog \
         -p OOMScoreAdjust=1000 /usr/bin/guest {arguments}",
        POD_UID.replace('_', "-")
    ))?;
    Ok(())
}

/// The load of `livelock-100`, for longer.
pub(crate) fn thrash(lab: &mut Lab) -> Result<()> {
    let mut scenario = loads::named("livelock-100")?;
    scenario.seconds = 200;
    lab.guest.limit_disks(scenario.disk)?;
    let total = lab
        .guest
        .sh("sed -nE 's/MemTotal: *([0-9]+).*/\\1/p' /proc/meminfo")?;
    lab.guest
        .sh(&scenario.script(total.trim().parse::<u64>()? / 1024))?;
    Ok(())
}

pub(crate) fn pods_end(lab: &mut Lab) -> Result<()> {
    lab.guest.limit_disks(0)?;
    wait_until("the guest to answer", Duration::from_mins(4), || {
        let ended = lab.guest.run(
            "systemctl stop cri-containerd-hog; systemctl set-property --runtime kubepods.slice MemoryMax=infinity",
        );
        Ok(ended.ok())
    })
    .map(drop)
}

/// Twice for fifteen seconds; with `kernel.watchdog_thresh` at 3 the kernel says so after six.
pub(crate) fn lock_up(lab: &mut Lab) -> Result<()> {
    lab.guest
        .sh("sysctl -q kernel.watchdog_thresh=3 || echo 3 >/proc/sys/kernel/watchdog_thresh")?;
    for _ in 0..2 {
        let before = lab.guest.poke(FUNCTION, &ENDLESS)?;
        lab.guest
            .sh(&format!("(sleep 1; {CALL}) >/dev/null 2>&1 &"))?;
        sleep(Duration::from_secs(16));
        lab.guest.poke_again(&before)?;
        sleep(Duration::from_secs(5));
    }
    Ok(())
}

pub(crate) fn oops(lab: &mut Lab) -> Result<()> {
    let before = lab.guest.poke(FUNCTION, &INVALID)?;
    let called = (0..2).try_for_each(|_| lab.guest.run(CALL).map(drop));
    lab.guest.poke_again(&before)?;
    called
}
