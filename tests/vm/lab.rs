//! A guest whose faults are mended again, with the kubelet's root on a disk of its own.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::guest::{Guest, Setting};
use super::support::api::condition;
use super::support::control_plane::ControlPlane;
use super::support::say;
use super::support::wait_until;
use super::support::watch::NodeWatch;

/// How long a condition is waited for; an emulated kubelet takes half a minute to start.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

const SETTING: Setting = Setting {
    swap_disk: false,
    zram_percent: 0,
    kubelet_oom_score_adjust: -999,
    memory_mib: 1024,
    real_kubelet: true,
};

/// What is True, or False for the hint, of a node that is well. (The helper reads the configuration in 5 s, or, of an emulated processor that
/// others wait for, does not; `KubeletConfigValid` is only not to be `False`.)
const WELL: [(&str, &str); 6] = [
    ("KubeletHealthy", "True"),
    ("ContainerRuntimeHealthy", "True"),
    ("NodeStorageHealthy", "True"),
    ("NodeKernelHealthy", "True"),
    ("NodeMemoryHealthy", "True"),
    ("MemoryExhaustionImminent", "False"),
];

/// Short waits, so that all fits in one guest.
const CONFIG: &str = "\
[kubelet]
healthy_for_secs = 0
start_grace_secs = 60
crash_loop_ends = 100
[bootstrap]
deadline_secs = 10
[storage]
interval_secs = 10
write_deadline_secs = 5
[runtime]
probe_secs = 5
[kernel]
hung_for_secs = 20
quiet_secs = 60
stalls = 2
stall_window_secs = 60
oopses = 2
oops_window_secs = 60
[events]
per_hour = 3600
";

/// Half of the disk is the kubelet's, half a pod's volume. The kubelet logs to its own, so that it waits for it.
const DISKS: &str = r#"
systemctl stop nodevigil nodevigil-helper.socket nodevigil-helper kubelet
echo 128M >/sys/block/zram0/disksize
half=$(($(cat /sys/block/zram0/size) / 2)); echo $half >/run/lab-size
dmsetup --noudevsync create lab --table "0 $half linear /dev/zram0 0"
dmsetup --noudevsync create volume --table "0 $half linear /dev/zram0 $half"
mke2fs -q -t ext4 -O ^has_journal -N 4000 /dev/dm-0
mkdir -p /run/new; mount -o errors=continue /dev/dm-0 /run/new
cp -a /var/lib/kubelet/. /run/new/; sed -i 's/"failCgroupV1":false,//' /run/new/config.yaml; umount /run/new
mount -o errors=continue /dev/dm-0 /var/lib/kubelet
mkdir -p -m 700 /var/lib/kubelet/.nodevigil
mkdir -p /run/systemd/system/kubelet.service.d /etc/nodevigil/config.d
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nStandardOutput=append:/var/lib/kubelet/log\nStandardError=append:/var/lib/kubelet/log\n' >/run/systemd/system/kubelet.service.d/70-log.conf
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=2\n' >/run/systemd/system/lab.conf
mkdir -p /run/systemd/system/containerd.service.d; mv /run/systemd/system/lab.conf /run/systemd/system/containerd.service.d/70-lab.conf
sed -i 's/$/ --rotate-certificates=false --v=4/' /etc/default/kubelet
sysctl -q kernel.hung_task_timeout_secs=10 2>/dev/null || echo 10 >/proc/sys/kernel/hung_task_timeout_secs
echo 1 >/proc/sys/net/ipv4/ip_forward # KN002
echo 10 >/proc/sys/kernel/hung_task_check_interval_secs; echo -1 >/proc/sys/kernel/hung_task_warnings
systemctl daemon-reload
systemctl start nodevigil-helper.socket kubelet nodevigil
"#;

/// The guest, and who watches its Node.
pub(crate) struct Lab {
    pub(crate) guest: Guest,
    pub(crate) watch: NodeWatch,
}

impl Lab {
    /// Boots it; returns when it is well.
    pub(crate) fn boot() -> Result<Self> {
        let plane = ControlPlane::shared()?;
        let guest = Guest::boot(&plane, SETTING)?;
        let watch = plane.watch_node(&guest.name)?;
        let mut lab = Self { guest, watch };
        lab.guest.sh(&format!(
            "mkdir -p /etc/nodevigil/config.d; cat >/etc/nodevigil/config.d/60-lab.toml <<'END'\n{CONFIG}END\nset -e\n{DISKS}"
        ))?;
        lab.be_well()?;
        Ok(lab)
    }

    /// Waits until the Node says that all is well.
    pub(crate) fn be_well(&mut self) -> Result<()> {
        let mut ill = Vec::new();
        let well = wait_until("a Node that is well", PATIENCE, || {
            let node = self.guest.plane.node(&self.guest.name)?;
            let node = node.unwrap_or_default();
            ill = WELL
                .iter()
                .filter_map(|(kind, wanted)| {
                    let told = condition(&node, kind).cloned().unwrap_or_default();
                    (told["status"] != *wanted).then(|| format!("{kind}: {told}"))
                })
                .collect();
            let config = condition(&node, "KubeletConfigValid");
            ill.extend(
                config
                    .filter(|told| told["status"] == "False")
                    .map(Value::to_string),
            );
            std::thread::sleep(Duration::from_millis(200));
            Ok(ill.is_empty().then_some(()))
        });
        well.with_context(|| format!("{ill:#?}\n{}", self.log()))
    }

    /// Waits until the condition has that status for that reason; returns it, and how long after `from`.
    pub(crate) fn wait_for(
        &mut self,
        from: Instant,
        kind: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<(Value, Duration)> {
        let has = |event: &Value| condition(event, kind).is_some_and(&wanted);
        let found = self.watch.wait_since(from, PATIENCE, has);
        let (at, event) = match found {
            Ok(found) => found,
            Err(error) => {
                let now = self.guest.plane.condition(&self.guest.name, kind).ok();
                return Err(error.context(format!("{kind} is {now:?}\n{}", self.log())));
            }
        };
        let told = condition(&event, kind).cloned().unwrap_or_default();
        Ok((told, at.duration_since(from)))
    }

    /// It was never `False` since then.
    pub(crate) fn ensure_never_false(&self, from: Instant, kind: &str) -> Result<()> {
        let is_false =
            |event: &Value| condition(event, kind).is_some_and(|told| told["status"] == "False");
        let bad = self
            .watch
            .since(from)
            .into_iter()
            .find(|(_, event)| is_false(event));
        ensure!(bad.is_none(), "{bad:?}");
        Ok(())
    }

    fn log(&mut self) -> String {
        let script = "journalctl -n 30 --no-pager -o short-monotonic -u nodevigil -u nodevigil-helper; tail -n 5 /var/lib/kubelet/log; dmesg | tail -n 15";
        // A guest without memory or threads does not answer.
        let log = self.guest.run(script);
        log.unwrap_or_else(|error| {
            say(&format!("{error:#}"));
            String::new()
        })
    }
}
