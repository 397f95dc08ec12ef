//! The table of disturbances, a part for each story. In each come first those that resemble no sampled problem.

use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::Act::{self, Do, Nothing, Shell};
use super::{AGENT_RESTARTS, Disturbance, acts};

const fn row(name: &'static str, begin: Act, secs: u64, end: Act) -> Disturbance {
    Disturbance { name, begin, secs, end, is_sampled: false }
}

const fn sampled(name: &'static str, begin: Act, secs: u64, end: Act) -> Disturbance {
    Disturbance { name, begin, secs, end, is_sampled: true }
}

/// Other processes than the kubelet and the container runtime, and the kernel's log about them.
pub const PROCESSES: &[Disturbance] = &[
    row("namesakes stopped, then killed", Shell(NAMESAKES), 8, Shell(KILL_NAMESAKES)),
    row("namesakes OOM-killed", Shell(OOM_NAMESAKES), 1, Nothing),
    row("kernel log lines written by user space", Shell(FORGED_LINES), 2, Nothing),
    row("pod OOM-killed at its memory limit", Shell(POD_MEMORY), 15, Shell(POD_MEMORY_END)),
    row("forks that fail in a pod", Shell(POD_FORKS), 8, Shell("systemctl stop pod-forks")),
    row("thousands of processes started", Shell(POD_PROCESSES), 10, Shell("systemctl stop pod-processes")),
    row("process IDs nearly used up", Do(acts::few_process_ids), 35, Shell(USUAL_PROCESS_IDS)),
    sampled("namesakes in state D, logged as hung tasks", Shell(HUNG_TASKS), 25, Shell(HUNG_TASKS_END)),
];

/// What an administrator does.
pub const PLANNED_WORK: &[Disturbance] = &[
    row("systemd reloaded", Shell("systemctl daemon-reload"), 2, Nothing),
    row("systemd executed again", Shell("systemctl daemon-reexec"), 3, Nothing),
    row("bus restarted", Shell("systemctl restart dbus"), 5, Nothing),
    row("bus hung", Shell(HANG_BUS), 10, Shell(CONTINUE_BUS)),
    row("journald restarted", Shell("journalctl --rotate; systemctl restart systemd-journald"), 3, Nothing),
    row("agent restarted", Shell(AGENT_RESTARTS[0]), 3, Nothing),
    row("agent killed", Shell(AGENT_RESTARTS[1]), 4, Nothing),
    row("agent stopped and started", Shell(AGENT_RESTARTS[2]), 3, Nothing),
    sampled("kubelet restarted", Shell("systemctl restart kubelet"), 4, Nothing),
    sampled("container runtime restarted", Shell("systemctl restart containerd"), 4, Nothing),
    sampled("kubelet upgraded by dpkg", Do(|node, _| acts::dpkg(node, UPGRADE_KUBELET)), 3, Nothing),
    sampled("container runtime upgraded by dpkg", Do(|node, _| acts::dpkg(node, UPGRADE_RUNTIME)), 3, Nothing),
    sampled("agent upgraded by dpkg", Do(|node, _| acts::dpkg(node, UPGRADE_AGENT)), 3, Nothing),
    sampled("kubelet upgraded by rpm", Do(|node, _| acts::rpm(node, UPGRADE_KUBELET)), 3, Nothing),
    sampled("container runtime upgraded by rpm", Do(|node, _| acts::rpm(node, UPGRADE_RUNTIME)), 3, Nothing),
    sampled("agent upgraded by rpm", Do(|node, _| acts::rpm(node, UPGRADE_AGENT)), 3, Nothing),
    sampled("restarts with all maintenance signals", Do(acts::begin_maintenance), 5, Do(acts::end_maintenance)),
    sampled("restarts while nodevigil is paused", Shell(RESTARTS_IN_PAUSE), 4, Shell("nodevigil resume")),
];

/// The kubelet's slice has 5 % of a processor, and four others in it take all of that.
pub const LIMITED_CPU: Disturbance =
    sampled("kubelet starved by the CPU limit of its slice", Shell(LIMIT_CPU), 30, Shell(UNLIMIT_CPU));

/// What happens to a virtual machine.
pub const GUEST: &[Disturbance] = &[
    row(
        "paused by its hypervisor",
        Do(|node, _| node.guest()?.monitor("stop")),
        30,
        Do(|node, _| node.guest()?.monitor("cont")),
    ),
    row(
        "stopped without notice",
        Do(|node, _| node.guest()?.signal(SIGSTOP)),
        30,
        Do(|node, _| node.guest()?.signal(SIGCONT)),
    ),
    row("clock set back", Shell("date -s '1 hour ago'"), 20, Shell("date -s '1 hour'")),
];

/// Too little CPU, and disks that are busy, almost full, or do not answer.
pub const LOAD: &[Disturbance] = &[
    row("agent starved by a CPU limit", Shell(LIMIT_AGENT), 20, Shell(UNLIMIT_AGENT)),
    row("disks read and written without a pause", Shell(DISK_LOAD), 20, Shell(DISK_LOAD_END)),
    row("the kubelet's disk almost full", Shell(FILL), 8, Shell("rm /srv/kubelet/fill")),
    row("the kubelet's disk frozen", Shell("fsfreeze -f /srv/kubelet"), 3, Shell("fsfreeze -u /srv/kubelet")),
    sampled("thread of the kubelet that waits for a disk", Do(acts::begin_stall), 35, Do(acts::end_stall)),
    LIMITED_CPU,
    sampled("host starved by processes with more CPU shares", Shell(HOGS), 30, Shell("systemctl stop 'hog-*'")),
];

/// The way to the API server and to the kubelet's /healthz.
pub const NETWORK: &[Disturbance] = &[
    row("API server stopped and started", Do(acts::stop_apiserver), 8, Do(|_, plane| plane.start_apiserver())),
    row("connections to the API server reset", Do(acts::reset_api_packets), 15, Shell(NO_FIREWALL)),
    row("clock of the agent 40 minutes ahead", Shell(CLOCK), 5, Shell(CLOCK_END)),
    sampled("API server hung", Do(acts::hang_apiserver), 15, Do(acts::continue_apiserver)),
    sampled("most packets to the API server lost", Do(acts::lose_most_api_packets), 20, Shell(NO_FIREWALL)),
    sampled("packets to /healthz lost", Do(acts::lose_healthz_packets), 10, Shell(NO_FIREWALL)),
    sampled("connections to /healthz reset", Do(acts::reset_healthz_packets), 10, Shell(NO_FIREWALL)),
    sampled("table of tracked connections full", Do(acts::fill_conntrack), 10, Shell(CONNTRACK_END)),
    // Until the Lease is old.
    sampled("all packets to the API server lost", Do(acts::lose_api_packets), 50, Shell(NO_FIREWALL)),
];

/// All of them.
pub const DISTURBANCES: [&[Disturbance]; 4] = [PROCESSES, PLANNED_WORK, LOAD, NETWORK];

/// A pod's and another user's processes by the names of kubelet and container runtime, setuid ones.
const NAMESAKES: &str = "for name in kubelet containerd; do
    install -D -m 4755 /bin/sleep /tmp/setuid/$name
    systemd-run --quiet --collect --unit=pod-$name --slice=kubepods.slice /tmp/setuid/$name 1000
    systemd-run --quiet --collect --unit=user-$name --slice=user-65534.slice --uid=65534 /tmp/setuid/$name 1000
    systemctl kill --signal=STOP pod-$name user-$name
    done";
const KILL_NAMESAKES: &str = "systemctl kill --signal=KILL 'pod-*' 'user-*.service'";
/// tail(1) keeps the last line of its input, which never ends.
const OOM_NAMESAKES: &str = "for name in kubelet containerd; do
    install -D /usr/bin/tail /tmp/grows/$name
    if systemd-run --quiet --wait --collect --slice=kubepods.slice -p MemoryLimit=16M -p MemoryMax=16M -p MemorySwapMax=0 \
      /tmp/grows/$name /dev/zero; then echo 'it was not killed'; exit 1; fi
    done";
const FORGED_LINES: &str = "pid=$(systemctl show --value --property=MainPID kubelet)
    echo \"<0>Memory cgroup out of memory: Killed process $pid (kubelet) total-vm:9kB, anon-rss:8kB, file-rss:0kB\" >/dev/kmsg
    echo \"<0>Out of memory: Killed process $pid (kubelet) total-vm:9kB, anon-rss:8kB, file-rss:0kB\" >/dev/kmsg
    echo \"<0>INFO: task kubelet:$pid blocked for more than 122 seconds.\" >/dev/kmsg
    echo '<0>INFO: task systemd:1 blocked for more than 122 seconds.' >/dev/kmsg
    echo '<0>watchdog: Watchdog detected hard LOCKUP on cpu 3' >/dev/kmsg
    echo '<0>{1}[Hardware Error]: event severity: fatal' >/dev/kmsg";
const POD_MEMORY: &str = "systemd-run --quiet --collect --unit=pod-memory --slice=kubepods.slice \
    -p MemoryLimit=64M -p MemoryMax=64M -p MemorySwapMax=0 -p OOMScoreAdjust=1000 \
    -p Restart=always -p RestartSec=100ms -p StartLimitIntervalSec=0 tail /dev/zero";
const POD_MEMORY_END: &str =
    "restarts=$(systemctl show --value --property=NRestarts pod-memory); systemctl stop pod-memory
    [ $restarts -gt 2 ] || { echo \"it was OOM-killed $restarts times\"; exit 1; }";
const POD_FORKS: &str = "systemd-run --quiet --collect --unit=pod-forks --slice=kubepods.slice -p TasksMax=10 \
    -p Restart=always -p RestartSec=100ms -p StartLimitIntervalSec=0 \
    sh -c 'for i in $(seq 100); do sleep 100 & done; wait'";
const POD_PROCESSES: &str = "systemd-run --quiet --collect --unit=pod-processes --slice=kubepods.slice -p TasksMax=infinity \
    sh -c 'for i in $(seq 3000); do sleep 100 & done; wait'";
const USUAL_PROCESS_IDS: &str = "cat /run/pid_max >/proc/sys/kernel/pid_max";
/// dd(1) by the names of kubelet and container runtime opens a file of a frozen file system. The kernel logs that after ten seconds.
const HUNG_TASKS: &str = "cat /proc/sys/kernel/hung_task_detect_count >/run/hung_tasks
    cat /proc/sys/kernel/hung_task_timeout_secs >/run/hung_timeout
    mkdir -p /mnt/frozen; truncate -s 8M /run/frozen.img; mkfs.ext4 -q -F /run/frozen.img; mount -o loop /run/frozen.img /mnt/frozen
    echo 10 >/proc/sys/kernel/hung_task_timeout_secs
    fsfreeze -f /mnt/frozen
    for name in kubelet containerd; do
    install -D /bin/dd /tmp/waits/$name
    systemd-run --quiet --collect --unit=waits-$name --slice=kubepods.slice /tmp/waits/$name if=/dev/zero of=/mnt/frozen/$name count=1
    done
    sleep 1; grep -q '^State:.D' /proc/$(systemctl show --value --property=MainPID waits-kubelet)/status";
const HUNG_TASKS_END: &str = "fsfreeze -u /mnt/frozen; cat /run/hung_timeout >/proc/sys/kernel/hung_task_timeout_secs
    sleep 1; umount /mnt/frozen
    [ $(cat /proc/sys/kernel/hung_task_detect_count) -gt $(cat /run/hung_tasks) ] || { echo 'no hung task was detected'; exit 1; }";

const HANG_BUS: &str = "systemctl kill --kill-who=main --signal=STOP dbus";
const CONTINUE_BUS: &str = "systemctl kill --kill-who=main --signal=CONT dbus";
const RESTARTS_IN_PAUSE: &str = "nodevigil pause 10m; systemctl restart kubelet containerd";
/// What the scripts of packages do.
const UPGRADE_KUBELET: &str = "systemctl stop kubelet; sleep 3; systemctl start kubelet";
const UPGRADE_RUNTIME: &str = "systemctl restart containerd";
const UPGRADE_AGENT: &str = "cp /usr/bin/nodevigil /usr/bin/nodevigil.new; mv /usr/bin/nodevigil.new /usr/bin/nodevigil; \
    systemctl try-restart nodevigil";

const LIMIT_AGENT: &str = "systemctl set-property --runtime nodevigil CPUQuota=5%";
const UNLIMIT_AGENT: &str = "systemctl set-property --runtime nodevigil CPUQuota=";
const DISK_LOAD: &str =
    "systemd-run --quiet --collect --unit=disk-load-1 dd if=/dev/vda of=/dev/null bs=1M iflag=direct
    systemd-run --quiet --collect --unit=disk-load-2 \
      sh -c 'while :; do dd if=/dev/zero of=/srv/kubelet/load bs=1M count=16 conv=fsync 2>/dev/null; done'";
const DISK_LOAD_END: &str = "systemctl stop 'disk-load-*'; rm -f /srv/kubelet/load";
/// All but 256 KiB.
const FILL: &str = "free=$(df --output=avail -k /srv/kubelet | tail -1)
    dd if=/dev/zero of=/srv/kubelet/fill bs=1k count=$((free - 256)) 2>/dev/null";
const LIMIT_CPU: &str = "systemctl set-property --runtime starving.slice CPUQuota=5%
    for i in 1 2 3 4; do systemd-run --quiet --collect --unit=starves-$i --slice=starving.slice -p CPUShares=262144 -p CPUWeight=10000 \
      sh -c 'while :; do :; done'; done";
const UNLIMIT_CPU: &str = "systemctl stop 'starves-*'; systemctl set-property --runtime starving.slice CPUQuota=";
const HOGS: &str = "for i in 1 2 3 4 5 6 7 8; do systemd-run --quiet --collect --unit=hog-$i --slice=hogs.slice sh -c 'while :; do :; done'; done
    systemctl set-property --runtime hogs.slice CPUShares=262144 CPUWeight=10000";

const NO_FIREWALL: &str = "nft delete table ip e2e";
const CONNTRACK_END: &str =
    "nft delete table ip e2e; cat /run/udp_timeout >/proc/sys/net/netfilter/nf_conntrack_udp_timeout; sleep 5";
const CLOCK: &str = "mkdir -p /run/systemd/system/nodevigil.service.d
    printf '[Service]\\nEnvironment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=+40m FAKETIME_DONT_FAKE_MONOTONIC=1\\n' \
      >/run/systemd/system/nodevigil.service.d/70-clock.conf
    systemctl daemon-reload; systemctl restart nodevigil";
const CLOCK_END: &str =
    "rm /run/systemd/system/nodevigil.service.d/70-clock.conf; systemctl daemon-reload; systemctl restart nodevigil";
