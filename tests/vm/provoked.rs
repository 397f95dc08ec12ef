//! How each reason that is bad is provoked in a guest: on cgroup v2, with the real kubelet and containerd, by root's own means.

use super::lab::Lab;
use super::{bootstrapped, by_hand};
use anyhow::Result;

/// What somebody does.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    /// In the guest, by a shell.
    Script(&'static str),
    /// From outside too.
    Host(fn(&mut Lab) -> Result<()>),
}

use Act::{Host, Script};

/// A fault, and how it is mended.
#[derive(Clone, Copy)]
pub(crate) struct Provocation {
    pub(crate) what: &'static str,
    pub(crate) how: &'static str,
    /// What the Node then says, by and by.
    pub(crate) reasons: &'static [&'static str],
    pub(crate) provoke: Act,
    pub(crate) mend: Act,
}

/// Stands for the reasons of `KubeletConfigValid`, which are rules: one of them.
pub(crate) const ANY_RULE: &str = "a rule";

/// What no guest of these can be brought to, and why.
pub(crate) const NOT_HERE: &[(&str, &str)] = &[(
    "KernelHardwareFailing",
    "Debian's cloud kernel is built without CONFIG_X86_MCE and EDAC, so no machine check of the emulator's is reported; the full kernel crashes in it",
)];

const fn fault(
    what: &'static str,
    how: &'static str,
    reasons: &'static [&'static str],
    provoke: &'static str,
    mend: &'static str,
) -> Provocation {
    Provocation {
        what,
        how,
        reasons,
        provoke: Script(provoke),
        mend: Script(mend),
    }
}

type Deed = fn(&mut Lab) -> Result<()>;

const fn done_by(
    what: &'static str,
    how: &'static str,
    reasons: &'static [&'static str],
    (provoke, mend): (Deed, Deed),
) -> Provocation {
    Provocation {
        what,
        how,
        reasons,
        provoke: Host(provoke),
        mend: Host(mend),
    }
}

/// All of them, each of a node that is well; what leaves traces until the reboot comes last.
pub(crate) const ALL: &[&[Provocation]] =
    &[KUBELET, CREDENTIALS, RUNTIME, STORAGE, BOOTSTRAP, HOST];

const KUBELET: &[Provocation] = &[
    fault(
        "kubelet frozen",
        "1 into its cgroup's cgroup.freeze",
        &["KubeletFrozen"],
        "echo 1 >/sys/fs/cgroup/system.slice/kubelet.service/cgroup.freeze",
        "echo 0 >/sys/fs/cgroup/system.slice/kubelet.service/cgroup.freeze",
    ),
    fault(
        "kubelet hung",
        "SIGSTOP",
        &["KubeletHung"],
        "systemctl kill -s STOP --kill-who=main kubelet",
        "systemctl kill -s CONT --kill-who=main kubelet",
    ),
    fault(
        "kubelet killed",
        "SIGKILL",
        &["KubeletCrashed"],
        "systemctl kill -s KILL --kill-who=main kubelet",
        "true",
    ),
    fault(
        "kubelet exits with code 0",
        "SIGTERM from a shell",
        &["KubeletExitedClean"],
        "kill -TERM $(systemctl show -P MainPID kubelet)",
        "true",
    ),
    fault(
        "kubelet dies while nobody says how",
        "SIGKILL, and no message bus",
        &["KubeletGone"],
        "systemctl stop dbus.socket dbus.service; kill -KILL $(systemctl show -P MainPID kubelet)",
        "systemctl start dbus.socket dbus.service",
    ),
    fault(
        "kubelet killed for memory",
        "MemoryMax=8M of its unit",
        &["KubeletOOMKilled", "MemoryKilledKubelet"],
        "systemctl set-property --runtime kubelet MemoryMax=8M",
        "systemctl set-property --runtime kubelet MemoryMax=infinity; systemctl reset-failed kubelet; systemctl start kubelet",
    ),
    fault(
        "kubelet ends again and again",
        "two SIGKILLs, crash_loop_ends = 2",
        &["KubeletCrashLooping"],
        "printf '[kubelet]\\ncrash_loop_ends = 2\\n' >/etc/nodevigil/config.d/70-more.toml; systemctl restart nodevigil; sleep 8
         systemctl kill -s KILL --kill-who=main kubelet; sleep 6; systemctl kill -s KILL --kill-who=main kubelet",
        "rm /etc/nodevigil/config.d/70-more.toml; systemctl restart nodevigil",
    ),
    fault(
        "systemd gives up",
        "StartLimitBurst=1 and a SIGKILL",
        &["KubeletStartLimitHit"],
        "printf '[Unit]\\nStartLimitIntervalSec=900\\nStartLimitBurst=1\\n' >/run/systemd/system/kubelet.service.d/80-more.conf
         systemctl daemon-reload; systemctl kill -s KILL --kill-who=main kubelet",
        "rm /run/systemd/system/kubelet.service.d/80-more.conf; systemctl daemon-reload; systemctl reset-failed kubelet; systemctl start kubelet",
    ),
    fault(
        "kubelet killed by systemd's watchdog",
        "WatchdogSec=10, a restart, SIGSTOP",
        &["KubeletWatchdogKilled"],
        "printf '[Service]\\nWatchdogSec=10\\nTimeoutAbortSec=2\\n' >/run/systemd/system/kubelet.service.d/80-more.conf
         systemctl daemon-reload; systemctl restart kubelet; sleep 40; systemctl kill -s STOP --kill-who=main kubelet",
        "rm /run/systemd/system/kubelet.service.d/80-more.conf; systemctl daemon-reload; systemctl restart kubelet",
    ),
    fault(
        "kubelet starts slowly",
        "ExecStartPre= that waits, start_grace_secs = 60",
        &["KubeletStartSlow"],
        "printf '[Service]\\nTimeoutStartSec=600\\nExecStartPre=/bin/sh -c \"while test -e /run/slow; do sleep 0.2; done\"\\n' >/run/systemd/system/kubelet.service.d/80-more.conf
         touch /run/slow; systemctl daemon-reload; systemctl restart --no-block kubelet",
        "rm /run/slow /run/systemd/system/kubelet.service.d/80-more.conf; systemctl daemon-reload",
    ),
    fault(
        "kubelet stopped with its container runtime",
        "BindsTo=containerd.service, and SIGKILL of containerd",
        &["KubeletStoppedWithDependency"],
        "printf '[Unit]\\nBindsTo=containerd.service\\n' >/run/systemd/system/kubelet.service.d/80-more.conf
         systemctl daemon-reload; systemctl kill -s KILL --kill-who=main containerd",
        "rm /run/systemd/system/kubelet.service.d/80-more.conf; systemctl daemon-reload; systemctl start kubelet",
    ),
    done_by(
        "nothing gets from the kubelet to the API server",
        "IPAddressDeny= of its unit",
        &["KubeletAPIConnectionStalled"],
        (by_hand::cut_off, by_hand::let_through),
    ),
    done_by(
        "nobody listens at the kubelet's healthz, and its Lease is old",
        "`healthz_url` with a port that has no listener, IPAddressDeny= of its unit",
        &["KubeletHealthzDown"],
        (by_hand::no_listener, by_hand::a_listener),
    ),
];

const CREDENTIALS: &[Provocation] = &[
    done_by(
        "kubelet's client certificate expired",
        "one of last year in its kubeconfig",
        &["KubeletClientCertExpired"],
        (by_hand::expired, by_hand::good_again),
    ),
    done_by(
        "kubelet's client certificate not valid yet",
        "one of next year in its kubeconfig",
        &["KubeletClientCertNotYetValid"],
        (by_hand::early, by_hand::good_again),
    ),
    fault(
        "kubelet's configuration would not start",
        "a flag that no kubelet has, and a restart of nobody's",
        &[ANY_RULE],
        "cp /etc/default/kubelet /run/good-flags; sed -i 's/$/ --no-such-flag/' /etc/default/kubelet",
        "cp /run/good-flags /etc/default/kubelet",
    ),
];

const RUNTIME: &[Provocation] = &[
    fault(
        "containerd killed",
        "SIGKILL",
        &["ContainerRuntimeDown"],
        "systemctl kill -s KILL --kill-who=main containerd",
        "true",
    ),
    fault(
        "containerd hung",
        "SIGSTOP",
        &["ContainerRuntimeHung"],
        "systemctl kill -s STOP --kill-who=main containerd",
        "systemctl kill -s CONT --kill-who=main containerd",
    ),
    fault(
        "containerd killed for memory",
        "MemoryMax=4M of its unit",
        &["ContainerRuntimeOOMKilled", "MemoryKilledContainerRuntime"],
        "systemctl set-property --runtime containerd MemoryMax=4M",
        "systemctl set-property --runtime containerd MemoryMax=infinity; systemctl reset-failed containerd; systemctl restart containerd",
    ),
    fault(
        "containerd without CRI",
        "disabled_plugins, and a restart",
        &["ContainerRuntimeNotReady"],
        "sed -i '1i disabled_plugins = [\"io.containerd.grpc.v1.cri\"]' /etc/containerd/config.toml; systemctl restart containerd",
        "sed -i 1d /etc/containerd/config.toml; systemctl restart containerd",
    ),
];

const STORAGE: &[Provocation] = &[
    fault(
        "kubelet's file system full",
        "dd until ENOSPC",
        &["StorageFull"],
        "dd if=/dev/zero of=/var/lib/kubelet/fill bs=64k 2>/dev/null; true",
        "rm /var/lib/kubelet/fill",
    ),
    fault(
        "no inode left on it",
        "empty files",
        &["StorageInodesExhausted"],
        "mkdir /var/lib/kubelet/many; systemd-run -q --unit=filler --working-directory=/var/lib/kubelet/many \
         sh -c 'while :; do seq 4000 | xargs touch 2>/dev/null; sleep 0.5; done'",
        "systemctl stop filler; rm -r /var/lib/kubelet/many",
    ),
    fault(
        "kubelet's file system read-only",
        "mount -o remount,ro,bind",
        &["FilesystemReadOnly"],
        "mount -o remount,ro,bind /var/lib/kubelet",
        "mount -o remount,rw,bind /var/lib/kubelet",
    ),
    fault(
        "kubelet's disk fails",
        "its device-mapper table becomes `error`",
        &["StorageIOError"],
        "dmsetup --noudevsync suspend --nolockfs lab; dmsetup reload lab --table \"0 $(cat /run/lab-size) error\"; dmsetup --noudevsync resume lab",
        "dmsetup --noudevsync suspend --nolockfs lab; dmsetup reload lab --table \"0 $(cat /run/lab-size) linear /dev/zram0 0\"; dmsetup --noudevsync resume lab; mount -o remount,rw /var/lib/kubelet",
    ),
    fault(
        "kubelet's disk hangs, and the kubelet in it, which cannot be killed",
        "fsfreeze -f, its log on that disk; then SIGKILL",
        &["StorageHung", "KernelDeadlocked", "KubeletUnkillable"],
        "fsfreeze -f /var/lib/kubelet; sleep 20; systemctl kill -s KILL --kill-who=main kubelet",
        "fsfreeze -u /var/lib/kubelet",
    ),
];

const BOOTSTRAP: &[Provocation] = &[
    bootstrapped::late(
        &["BootstrapStuckAtRuntime"],
        "new node without a container runtime",
        bootstrapped::without_runtime,
    ),
    bootstrapped::late(
        &["BootstrapStuckAtKubelet"],
        "new node whose kubelet does not run",
        bootstrapped::without_kubelet,
    ),
    bootstrapped::late(
        &["BootstrapStuckAtCredential"],
        "new node whose kubelet has an expired credential",
        bootstrapped::without_credential,
    ),
    bootstrapped::late(
        &["BootstrapStuckAtCloudController"],
        "new node that no cloud controller initialises",
        bootstrapped::uninitialised,
    ),
    bootstrapped::late(
        &["BootstrapStuckAtNetwork"],
        "new node without a pod network",
        bootstrapped::without_network,
    ),
    bootstrapped::late(
        &["BootstrapStuckAtVolumes"],
        "new node without its volume driver",
        bootstrapped::without_volumes,
    ),
    bootstrapped::late(
        &["BootstrapStuckAtReady"],
        "new node that keeps a start-up taint",
        bootstrapped::with_a_taint,
    ),
];

const HOST: &[Provocation] = &[
    done_by(
        "no thread can be started",
        "threads up to kernel.threads-max",
        &["KernelPidsExhausted"],
        (by_hand::fill_threads, by_hand::free_threads),
    ),
    done_by(
        "all pods together at their limit",
        "MemoryMax= of kubepods.slice, and a pod that grows",
        &["MemoryPodsRunOut"],
        (by_hand::pods_grow, by_hand::pods_end),
    ),
    done_by(
        "host thrashes",
        "a pod that grows until 2 % are available, a disk of 100 requests a second",
        &["MemoryRunsOut", "MemoryThrashing"],
        (by_hand::thrash, by_hand::pods_end),
    ),
    done_by(
        "kernel stands still twice",
        "by the emulator's debugger a function of the kernel's becomes an endless loop for a while",
        &["KernelLockedUp"],
        (by_hand::lock_up, by_hand::nothing),
    ),
    done_by(
        "kernel meets faults of its own",
        "by the emulator's debugger a function of the kernel's becomes an invalid instruction, called twice",
        &["KernelOopsRepeated"],
        (by_hand::oops, by_hand::nothing),
    ),
];
