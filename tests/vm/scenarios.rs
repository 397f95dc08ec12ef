//! What a load is: the guest it needs, what runs in it, what is to come of it.

use super::guest::Setting;

/// What a load does to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The host itself runs out of memory, and the kernel kills.
    Kill,
    /// The host is so short of memory that it does little but read its programs anew; nobody is killed.
    Thrash,
    /// The kubelet is killed in its control group's own limit; the host has memory.
    OwnLimit,
    /// Nothing that anybody has to be told.
    Nothing,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Its name, and its trace's.
    pub(crate) name: &'static str,
    /// What it is, in a trace's head.
    pub(crate) what: &'static str,
    /// What becomes of it.
    pub(crate) outcome: Outcome,
    /// The guest that it needs.
    pub(crate) setting: Setting,
    /// How many requests a second the disks do.
    pub(crate) disk: u32,
    /// How long it takes, in seconds.
    pub(crate) seconds: u64,
    /// How long it runs, in seconds, before anything is recorded.
    pub(crate) lead: u64,
    /// What runs.
    pub(crate) load: Load,
}

/// What runs in the guest. Sizes and rates are in hundredths of the guest's memory, so that they mean the same in each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// A pod whose memory grows by so many hundredths a second, until it is killed.
    Grow {
        percent_per_s: u32,
        random_bytes: u32,
    },
    /// The same, never killed: the kernel takes somebody else, and then it ends.
    GrowUnkillable { percent_per_s: u32 },
    /// A pod that grows until so many hundredths are available, and is then held and touched.
    GrowUntil {
        percent_per_s: u32,
        available_percent: u32,
        touch_per_s: u32,
    },
    /// A pod that grows to so many hundredths, and is then held and touched.
    GrowTo {
        percent_per_s: u32,
        percent: u32,
        random_bytes: u32,
        touch_per_s: u32,
    },
    /// Two readers that want more of a file than their pod's limit lets them keep.
    ThrashInLimit,
    /// The disk, read from its beginning to its end.
    ReadDisk,
    /// Files written as an image that is unpacked.
    WriteFiles,
    /// The kubelet's own control group is given so little after five seconds.
    LimitKubelet { mib: u32 },
}

impl Scenario {
    /// What a trace says of swap.
    pub(crate) fn swap(&self) -> &'static str {
        match self.setting {
            Setting {
                swap_disk: true, ..
            } => "disk",
            Setting {
                zram_percent: 1.., ..
            } => "zram",
            _ => "none",
        }
    }

    /// The script that starts the load; it returns at once. `total_mib` is the guest's memory.
    pub(crate) fn script(&self, total_mib: u64) -> String {
        let hold = self.lead + self.seconds;
        match self.load {
            Load::Grow {
                percent_per_s,
                random_bytes,
            } => {
                let rest = format!("--random-bytes {random_bytes}");
                pod("hog", 1000, &grow(total_mib, percent_per_s, &rest))
            }
            Load::GrowUnkillable { percent_per_s } => pod(
                "hog",
                -1000,
                &grow(total_mib, percent_per_s, "--until-kill"),
            ),
            Load::GrowUntil {
                percent_per_s,
                available_percent,
                touch_per_s,
            } => {
                let until = u64::from(available_percent) * total_mib / 100;
                // Released before the end, where the beginning is recorded too.
                let hold = if self.lead > 0 { hold } else { hold - 20 };
                let rest = format!(
                    "--until-available {until} --touch-per-s {touch_per_s} --hold-s {hold}"
                );
                pod("hog", 1000, &grow(total_mib, percent_per_s, &rest))
            }
            Load::GrowTo {
                percent_per_s,
                percent,
                random_bytes,
                touch_per_s,
            } => {
                let size = u64::from(percent) * total_mib / 100;
                let rest = format!(
                    "--mib {size} --random-bytes {random_bytes} --touch-per-s {touch_per_s} --hold-s {hold}"
                );
                pod("hog", 1000, &grow(total_mib, percent_per_s, &rest))
            }
            Load::ThrashInLimit => pod_of("readers", 1000, "-p MemoryMax=16M", READERS),
            Load::ReadDisk => pod("reader", 1000, "read --file /dev/vda"),
            Load::WriteFiles => pod("writer", 1000, WRITER),
            Load::LimitKubelet { mib } => {
                format!("(sleep 3; echo {mib}M > {KUBELET}/memory.max) &")
            }
        }
    }
}

const READERS: &str = "/bin/sh -c '(/usr/bin/guest touch --file /var/lib/pages --mib 40 --secs 20 & \
    exec /usr/bin/guest touch --file /var/lib/pages --mib 40 --secs 20)'";
const WRITER: &str = "write --folder /var/lib/layers --files 4 --mib 60 --mib-per-s 20";
const KUBELET: &str = "/sys/fs/cgroup/system.slice/kubelet.service";

/// A program that grows by so many hundredths of the memory a second.
fn grow(total_mib: u64, percent_per_s: u32, rest: &str) -> String {
    let tenths = u64::from(percent_per_s) * total_mib / 10;
    format!("grow --mib-per-s {}.{} {rest}", tenths / 10, tenths % 10)
}

/// The pod that a load's program is, as the kubelet and containerd place it.
fn pod(name: &str, oom_score_adjust: i32, arguments: &str) -> String {
    let command = format!("/usr/bin/guest {arguments}");
    pod_of(name, oom_score_adjust, "", &command)
}

/// The uid of the pod in which every load runs, as in the names of control groups.
pub(crate) const POD_UID: &str = "6f1f2c52_8b1d_4a57_9a55_1d6b6f3a9c01";

fn pod_of(name: &str, oom_score_adjust: i32, properties: &str, command: &str) -> String {
    format!(
        "mkdir -p /var/log/pods/shop_{name}_{}/{name}
         systemd-run -q --collect --slice=kubepods-besteffort-pod{POD_UID}.slice \
           --unit=cri-containerd-{name} -p OOMScoreAdjust={oom_score_adjust} {properties} {command}",
        POD_UID.replace('_', "-")
    )
}
