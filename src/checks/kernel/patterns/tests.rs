//! Lines that kernels really wrote, from where they were recorded, and what must be made of each.

use super::super::sift::Sifter;
use super::*;
use crate::checks::kernel::event::KernelEvent;

/// Pattern; kernel, or the host and the date, as far as the source has them; source; subject; line. What was provoked was so
/// in a guest of qemu, with Debian's kernels.
type Recorded = (
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
    &'static str,
);

#[rustfmt::skip]
const RECORDED: &[Recorded] = &[
    ("hung-task", "4.15.0-29 Ubuntu", "dotmesh-io/dotmesh#540", Some("systemd:1"),
        "INFO: task systemd:1 blocked for more than 120 seconds."),
    ("hung-task", "4.19.262", "moby/moby#44552", Some("dockerd:3946"),
        "INFO: task dockerd:3946 blocked for more than 120 seconds."),
    ("hung-task", "5.4.89+ COS", "containerd/containerd#5325", Some("dockerd:1810"),
        "INFO: task dockerd:1810 blocked for more than 328 seconds."),
    ("hung-task", "5.10.213 Amazon Linux 2", "aws-neuron/aws-neuron-sdk#887", Some("containerd-shim:28325"),
        "INFO: task containerd-shim:28325 blocked for more than 120 seconds."),
    ("soft-lockup", "3.10.0-862.el7", "kubernetes/kubernetes#65142", Some("kubelet:1663"),
        "NMI watchdog: BUG: soft lockup - CPU#6 stuck for 22s! [kubelet:1663]"),
    ("soft-lockup", "August 2018", "easzlab/kubeasz#300", Some("runc:[1:CHILD]:185318"),
        "NMI watchdog: BUG: soft lockup - CPU#34 stuck for 22s! [runc:[1:CHILD]:185318]"),
    ("soft-lockup", "5.10.119-linuxkit", "lf-edge/eve#2653", Some("002-logging:310"),
        "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [002-logging:310]"),
    ("soft-lockup", "May 2024", "thesofproject/linux#5008", Some("rtcwake:72543"),
        "watchdog: BUG: soft lockup - CPU#1 stuck for 45s! [rtcwake:72543]"),
    ("hard-lockup", "Amlogic S905X", "linux-amlogic list: crtscts on a port without it", None,
        "watchdog: Watchdog detected hard LOCKUP on cpu 3"),
    ("hard-lockup", "amdgpu, virtual display", "drm-misc: amdgpu_vkms_disable_vblank", None,
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 1"),
    ("hard-lockup", "IGT host", "dri-devel: syncobj_timeline, stress-enable-all-signal-all-forward", None,
        "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3"),
    ("rcu-stall", "CentOS 7.6", "goharbor/harbor#14163", None,
        "INFO: rcu_sched self-detected stall on CPU { 0} (t=81782271 jiffies g=123789 c=123788 q=21698007)"),
    ("rcu-stall", "CentOS 7.6", "goharbor/harbor#14163", None,
        "INFO: rcu_sched detected stalls on CPUs/tasks: { 0} (detected by 85 t=81782272 jiffies, g=123789, c=123788, q=21744209"),
    ("rcu-stall", "5.10.27-v8", "skiffos/SkiffOS#147", None,
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    ("rcu-stall", "6.18.33 NixOS", "oxidecomputer/propolis#1153", None,
        "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("rcu-stall", "mainline of May 2022", "lkrg-org/lkrg#189", None,
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 0-... } 6 jiffies s: 85 root: 0x1/."),
    ("netdevice-stuck", "COS on GKE, July 2018", "kubernetes/kubernetes#64743", Some("eth0"),
        "unregister_netdevice: waiting for eth0 to become free. Usage count = 1"),
    ("netdevice-stuck", "4.9.24 Container Linux", "kubernetes/kubernetes#20096", Some("lo"),
        "unregister_netdevice: waiting for lo to become free. Usage count = 1"),
    ("netdevice-stuck", "4.4.0-71 Ubuntu", "moby/moby#5618", Some("lo"),
        "unregister_netdevice: waiting for lo to become free. Usage count = 3"),
    ("panic", "GKE 1.14.10", "GoogleCloudPlatform/kubernetes-engine-samples#138", None,
        "Kernel panic - not syncing: softlockup: hung tasks"),
    ("panic", "192.168.122.82", "tempesta-tech/tempesta#2653", None,
        "Kernel panic - not syncing: Fatal exception in interrupt"),
    ("panic", "5.4.25 arm64", "coresight list: SC7180", None,
        "Kernel panic - not syncing: Watchdog detected hard LOCKUP on cpu 0"),
    ("oops", "4.15.0-154 Ubuntu", "google/cadvisor#2933", None,
        "BUG: unable to handle kernel NULL pointer dereference at 0000000000000158"),
    ("oops", "4.15.0-154 Ubuntu", "google/cadvisor#2933", None,
        "Oops: 0000 [#1] SMP NOPTI"),
    ("oops", "4.3.6-coreos", "coreos/bugs#1240", None,
        "divide error: 0000 [#1] SMP"),
    ("oops", "2013", "ashaffer/rt3573sta#2", None,
        "kernel BUG at net/core/skbuff.c:127!"),
    ("oops", "2013", "ashaffer/rt3573sta#2", None,
        "invalid opcode: 0000 [#1] PREEMPT SMP"),
    ("oops", "5.15.0-83 Ubuntu", "NVIDIA/k8s-device-plugin#941", None,
        "general protection fault, probably for non-canonical address 0x78d29c0722bf7aa1: 0000 [#1] SMP NOPTI"),
    ("oops", "5.16.4 Ubuntu", "Aquantia/AQtion#32", None,
        "BUG: kernel NULL pointer dereference, address: 0000000000000008"),
    ("oops", "6.12.28 arm64", "apple/container#614", None,
        "Unable to handle kernel NULL pointer dereference at virtual address 00000000000000a0"),
    ("oops", "6.12.28 arm64", "apple/container#614", None,
        "Internal error: Oops: 0000000096000004 [#1] SMP"),
    ("cper-fatal", "APEI source 11", "linux-acpi: AER of a fatal error is not printed", None,
        "{763}[Hardware Error]: event severity: fatal"),
    ("cper-fatal", "APEI source 5", "intel-wired-lan: i40e in S5", None,
        "{1}[Hardware Error]: event severity: fatal"),
    ("cper-recoverable", "linux-dgwd, August 2019", "andikleen/mcelog#74", None,
        "{1}[Hardware Error]: event severity: recoverable"),
    ("cper-recoverable", "mo-srv-128 (November 2024)", "matrixorigin/matrixone#20374", None,
        "{7}[Hardware Error]: event severity: recoverable"),
    ("cper-corrected", "Ampere Altra, Ubuntu 20.04", "nodejs/build#2894", None,
        "{77}[Hardware Error]: event severity: corrected"),
    ("cper-corrected", "proxmox (December 2025)", "prometheus/node_exporter#3511", None,
        "{35}[Hardware Error]: event severity: corrected"),
    ("cper-before", "Toshiba", "linux-acpi: unknown error record in BERT", None,
        "[Hardware Error]: event severity: fatal"),
    ("cper-before", "SEV-SNP host", "dmesg with RMP table at 0x7fef500000", None,
        "[Hardware Error]: event severity: fatal"),
    ("edac-uncorrected", "Ice Lake, August 2021", "linux-edac: skx, injected", Some("CPU_SrcID#0_MC#3_Chan#0_DIMM#0"),
        "EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0 (channel:0 slot:0 page:0x7e025e offset:0x400 grain:32 -  err_code:0x00a0:0x0090  SystemAddress:0x7e025e400 ProcessorSocketId:0x0 MemoryControllerId:0x3"),
    ("edac-uncorrected", "June 2023", "linux-mm: recovery action for dirty page", Some("CPU_SrcID#0_MC#0_Chan#1_DIMM#0"),
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (xxx xxx)"),
    ("edac-corrected", "errol (May 2019)", "openstreetmap/operations#300", Some("CPU#0Channel#2_DIMM#0"),
        "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0 page:0x0 offset:0x0 grain:8 syndrome:0x0)"),
    ("edac-corrected", "dunkel (October 2022)", "illinois-scicomp/machine-shop-maintenance#66", Some("CPU_SrcID#0_Ha#0_Chan#1_DIMM#0"),
        "EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2031c14 offset:0x940 grain:32 syndrome:0x0 -  OVERFLOW area:DRAM err_code:0001:0091 socket:0 ha:0 channel_mask:2 rank:1)"),
    ("edac-corrected", "fnl226b (February 2018)", "radiasoft/devops#134", Some("CPU_SrcID#1_Ha#0_Chan#0_DIMM#0"),
        "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0xee30a0 offset:0x0 grain:32 syndrome:0x0 -  area:DRAM err_code:0008:00c2 socket:1 ha:0 channel_mask:1 rank:0)"),
    ("memory-uncorrected", "June 2018", "linux-mm: memory_failure() about ZONE_DEVICE pages", None,
        "mce: Uncorrected hardware memory error in user-access at af34214200"),
    ("memory-uncorrected", "6.0.0-rc3+ WilsonCity", "linux-kernel: machine check recovery broken in v6.9-rc1", None,
        "mce: Uncorrected hardware memory error in user-access at 8a398a400"),
    ("memory-uncorrected", "5.10.0-46 Debian", "provoked: machine check of a process's page by qemu's monitor", None,
        "mce: Uncorrected hardware memory error in user-access at 10459000"),
    ("memory-uncorrected", "7.3.4 Debian", "provoked: machine check of a process's page by qemu's monitor", None,
        "mce: Uncorrected hardware memory error in user-access at 3c1f0000"),
    ("memory-failure", "cellsrv host", "linux-mm: cellsrv", None,
        "Memory failure: 0x1840200: Killing cellsrv:33395 due to hardware memory corruption"),
    ("memory-failure", "5.10.0-46 Debian", "provoked: machine check of a process's page by qemu's monitor", None,
        "Memory failure: 0x10459: Sending SIGBUS to poke:511 due to hardware memory corruption"),
    ("memory-failure", "7.3.4 Debian", "provoked: machine check of a process's page by qemu's monitor", None,
        "Memory failure: 0x3c1f0: Sending SIGBUS to poke:115 due to hardware memory corruption"),
    ("memory-recovery", "kernel under a fuzzer", "nccgroup/TriforceLinuxSyscallFuzzer#2", None,
        "MCE 0x318: recovery action for dirty LRU page: Recovered"),
    ("memory-recovery", "June 2018", "linux-mm: memory_failure() about ZONE_DEVICE pages", None,
        "Memory failure: 0xaf34214: recovery action for reserved kernel page: Failed"),
    ("memory-recovery", "6.1.0-56 Debian", "provoked: memory scrubbing error by qemu's monitor", None,
        "Memory failure: 0x4c97: recovery action for dirty LRU page: Recovered"),
    ("memory-recovery", "7.3.4 Debian", "provoked: memory scrubbing error by qemu's monitor", None,
        "Memory failure: 0x124c6: recovery action for dirty LRU page: Recovered"),
    ("fork-refused", "SLES 12 SP5 (2020)", "Icinga/icinga2#4918", Some("/system.slice/icinga2.service"),
        "cgroup: fork rejected by pids controller in /system.slice/icinga2.service"),
    ("fork-refused", "dev box (May 2021)", "twosigma/nsncd#24", Some("/system.slice/nsncd.service"),
        "cgroup: fork rejected by pids controller in /system.slice/nsncd.service"),
    ("conntrack-full", "3.10 CentOS 7.2", "kubernetes/kubernetes#71261", None,
        "nf_conntrack: table full, dropping packet"),
    ("conntrack-full", "March 2017", "kubernetes-retired/kube-aws#476", None,
        "nf_conntrack: nf_conntrack: table full, dropping packet"),
    ("conntrack-full", "5.10.0-46 Debian", "provoked: nf_conntrack_max of 8", None,
        "nf_conntrack: nf_conntrack: table full, dropping packet"),
    ("conntrack-full", "7.3.4 Debian", "provoked: nf_conntrack_max of 8", None,
        "nf_conntrack: nf_conntrack: table full, dropping packet"),
    ("ext4-readonly", "AWS, August 2015", "kubernetes/kubernetes#12905", Some("dm-4"),
        "EXT4-fs (dm-4): Remounting filesystem read-only"),
    ("ext4-readonly", "Ubuntu on Rockchip, September 2024", "Joshua-Riek/ubuntu-rockchip#1060", Some("mmcblk0p2"),
        "EXT4-fs (mmcblk0p2): Remounting filesystem read-only"),
    ("ext4-error", "AWS, August 2015", "kubernetes/kubernetes#12905", Some("dm-4"),
        "EXT4-fs error (device dm-4) in ext4_setattr:4562: Journal has aborted"),
    ("ext4-error", "node2", "longhorn/longhorn#6650", Some("sdf"),
        "EXT4-fs error (device sdf): ext4_check_bdev_write_error:217: comm filebeat: Error while async write back metadata"),
    ("ext4-error", "host with rsync", "bit-team/backintime#2568", Some("sdd1"),
        "EXT4-fs error (device sdd1): ext4_journal_check_start:83: comm rsync: Detected aborted journal"),
    ("ext4-warning", "sentinel", "raspberrypi/linux#703", Some("dm-1"),
        "EXT4-fs warning (device dm-1): ext4_end_bio:316: I/O error -19 writing to inode 10223621 (offset 50331648 size 6148096 starting block 14409150)"),
    ("ext4-warning", "Qubes dom0", "QubesOS/qubes-issues#7795", Some("dm-4"),
        "EXT4-fs warning (device dm-4): ext4_end_bio:343: I/O error 10 writing to inode 1182507 starting block 2920460)"),
    ("ext4-io-error", "node2", "longhorn/longhorn#6650", Some("sdi"),
        "EXT4-fs (sdi): I/O error while writing superblock"),
    ("ext4-io-error", "Raspberry Pi 4 (March 2022)", "luxonis/depthai-python#532", Some("sda1"),
        "EXT4-fs (sda1): I/O error while writing superblock"),
    ("ext4-io-error", "5.10.0-46 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "EXT4-fs (dm-0): I/O error while writing superblock"),
    ("ext4-io-error", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "EXT4-fs (dm-0): I/O error while writing superblock"),
    ("ext4-data-loss", "Ubuntu on Rockchip, September 2024", "Joshua-Riek/ubuntu-rockchip#1060", Some("mmcblk0p2"),
        "EXT4-fs (mmcblk0p2): failed to convert unwritten extents to written extents -- potential data loss!  (inode 257144, error -30)"),
    ("ext4-data-loss", "Ubuntu 20.04 (November 2022)", "longhorn/longhorn#4925", Some("sdg"),
        "EXT4-fs (sdg): failed to convert unwritten extents to written extents -- potential data loss!  (inode 262194, error -30)"),
    ("ext4-data-lost", "4.1.5", "linux-ext4: ext4 errors with full filesystem", Some("sda5"),
        "EXT4-fs (sda5): This should not happen!! Data will be lost"),
    ("ext4-data-lost", "SONiC, April 2025", "sonic-net/sonic-buildimage#24437", Some("loop1"),
        "EXT4-fs (loop1): This should not happen!! Data will be lost"),
    ("journal-aborted", "AWS, August 2015", "kubernetes/kubernetes#12905", Some("dm-4"),
        "Aborting journal on device dm-4-8."),
    ("journal-aborted", "SONiC, June 2025", "sonic-net/sonic-buildimage#23146", Some("loop1"),
        "Aborting journal on device loop1-8."),
    ("journal-io-error", "Raspberry Pi 4 (March 2022)", "luxonis/depthai-python#532", Some("sda1"),
        "JBD2: Detected IO errors while flushing file data on sda1-8"),
    ("journal-io-error", "5.10.0-46 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "JBD2: Detected IO errors while flushing file data on dm-0-8"),
    ("journal-io-error", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "JBD2: Detected IO errors -5 while flushing file data on dm-0-8"),
    ("xfs-shutdown", "before 5.15", "kubernetes/node-problem-detector#845", Some("dm-4"),
        "XFS (dm-4): I/O Error Detected. Shutting down filesystem"),
    ("xfs-shutdown", "Stratis host", "stratis-storage/stratisd#812", Some("dm-11"),
        "XFS (dm-11): Corruption of in-memory data detected.  Shutting down filesystem"),
    ("xfs-shutdown", "5.10.0-46 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "XFS (dm-0): Log I/O Error Detected. Shutting down filesystem"),
    ("xfs-log-shutdown", "Talos (May 2024)", "siderolabs/talos#8733", Some("sdb6"),
        "XFS (sdb6): Filesystem has been shut down due to log error (0x2)."),
    ("xfs-log-shutdown", "6.18.0-rc2", "linux-xfs: generic/648 metadata corruption", Some("dm-0"),
        "XFS (dm-0): Filesystem has been shut down due to log error (0x2)."),
    ("xfs-log-shutdown", "6.1.0-56 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "XFS (dm-0): Filesystem has been shut down due to log error (0x2)."),
    ("xfs-forced-shutdown", "Stratis host", "stratis-storage/stratisd#812", Some("dm-11"),
        "XFS (dm-11): xfs_do_force_shutdown(0x8) called from line 3486 of file fs/xfs/xfs_inode.c.  Return address = 00000000cc36f40e"),
    ("xfs-forced-shutdown", "before 5.15", "kubernetes/node-problem-detector#845", Some("dm-4"),
        "XFS (dm-4): xfs_do_force_shutdown(0x1) called from line 1788 of file fs/xfs/xfs_inode.c.  Return address = 000000009d022bf1"),
    ("xfs-corruption", "before 5.15", "kubernetes/node-problem-detector#845", Some("dm-4"),
        "XFS (dm-4): Corruption detected. Unmount and run xfs_repair"),
    ("xfs-corruption", "July 2021", "vitalif/vitastor#14", Some("nbd0"),
        "XFS (nbd0): Metadata corruption detected at xfs_dinode_verify.part.0+0x172/0x640 [xfs], inode 0x14506b6d dinode"),
    ("xfs-checksum", "Fedora CoreOS 33.20210301", "coreos/fedora-coreos-tracker#784", Some("vda4"),
        "XFS (vda4): Metadata CRC error detected at xfs_dquot_buf_verify_crc+0xe6/0x120 [xfs], xfs_dquot block 0x1478 xfs_dquot_buf_verify_crc"),
    ("xfs-checksum", "June 2014", "xfs list: metadata CRC error upon unclean unmount", Some("sda1"),
        "XFS (sda1): Metadata CRC error detected at xfs_agi_read_verify+0x5e/0x110 [xfs], block 0x2"),
    ("xfs-checksum", "5.10.0-46 Debian", "provoked: two bytes of an AGI overwritten", Some("dm-0"),
        "XFS (dm-0): Metadata CRC error detected at xfs_agi_read_verify+0xe9/0x120 [xfs], xfs_agi block 0x2 "),
    ("xfs-checksum", "7.3.4 Debian", "provoked: two bytes of an AGI overwritten", Some("dm-0"),
        "XFS (dm-0): Metadata CRC error detected at xfs_agi_read_verify+0xde/0x120 [xfs], xfs_agi block 0x2 "),
    ("xfs-internal", "before 5.15", "kubernetes/node-problem-detector#845", Some("dm-4"),
        "XFS (dm-4): Internal error xfs_iunlink_remove at line 2038 of file fs/xfs/xfs_inode.c.  Caller xfs_ifree+0x33/0x130 [xfs]"),
    ("xfs-internal", "4.18.0-553.58.1.el8_10", "wiki.redatek.de: XFS after an update of the kernel", Some("dm-0"),
        "XFS (dm-0): Internal error i != 1 at line 481 of file fs/xfs/libxfs/xfs_alloc.c. Caller xfs_alloc_fixup_trees+0x198/0x3b0 [xfs]"),
    ("xfs-internal", "6.1.0-56 Debian", "provoked: a record of free space changed by xfs_db", Some("dm-0"),
        "XFS (dm-0): Internal error i != 1 at line 498 of file fs/xfs/libxfs/xfs_alloc.c.  Caller xfs_alloc_fixup_trees+0x333/0x3b0 [xfs]"),
    ("xfs-internal", "7.3.4 Debian", "provoked: a record of free space changed by xfs_db", Some("dm-0"),
        "XFS (dm-0): Internal error i != 1 at line 628 of file fs/xfs/libxfs/xfs_alloc.c.  Caller xfs_alloc_fixup_trees+0x9f/0x560 [xfs]"),
    ("xfs-metadata-io-error", "hdp-datanode-1", "dm-vdo/kvdo#25", Some("dm-7"),
        "XFS (dm-7): metadata I/O error: block 0x280000010 (\"xlog_bread_noalign\") error 5 numblks 8"),
    ("xfs-metadata-io-error", "Fedora CoreOS 33.20210301", "coreos/fedora-coreos-tracker#784", Some("vda4"),
        "XFS (vda4): metadata I/O error in \"xfs_dquot_disk_read+0x14a/0x220 [xfs]\" at daddr 0x1478 len 8 error 74"),
    ("xfs-log-io-error", "Talos (May 2024)", "siderolabs/talos#8733", Some("sdb6"),
        "XFS (sdb6): log I/O error -5"),
    ("xfs-log-io-error", "storage01 (February 2025)", "alain.apigban.com: another I/O error", Some("sdb1"),
        "XFS (sdb1): log I/O error -5"),
    ("xfs-log-io-error", "5.10.0-46 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "XFS (dm-0): log I/O error -5"),
    ("xfs-log-io-error", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "XFS (dm-0): log I/O error -5"),
    ("xfs-writeback-error", "Stratis host", "stratis-storage/stratisd#812", Some("dm-11"),
        "XFS (dm-11): writeback error on sector 738263040"),
    ("xfs-writeback-error", "6.11.0-rc4 arm64", "linux-fsdevel: jump labels on 6.11-rc1", Some("sda3"),
        "sda3: writeback error on inode 111200510, offset 9166848, sector 24924992"),
    ("xfs-writeback-error", "5.10.0-46 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "dm-0: writeback error on inode 131, offset 61440, sector 312"),
    ("xfs-writeback-error", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "dm-0: writeback error on inode 131, offset 0, sector 192"),
    ("btrfs-readonly", "3.13.6+", "xbianonpi/xbian#522", Some("mmcblk0p2"),
        "BTRFS info (device mmcblk0p2): forced readonly"),
    ("btrfs-readonly", "5.11.0-1020-aws", "btrfs/linux#761", Some("nvme2n1"),
        "BTRFS info (device nvme2n1): forced readonly"),
    ("btrfs-readonly", "host with rpm-ostree", "coreos/rpm-ostree#4457", Some("sda3"),
        "BTRFS info (device sda3: state E): forced readonly"),
    ("btrfs-readonly", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "BTRFS info (device dm-0 state EA): forced readonly"),
    ("btrfs-aborted", "6.12.107 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "BTRFS error (device dm-0 state A): Transaction aborted (error -5)"),
    ("btrfs-aborted", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "BTRFS error (device dm-0 state A): Transaction 8 aborted (-EIO)"),
    ("btrfs-io-error", "3.13.6+", "xbianonpi/xbian#522", Some("mmcblk0p2"),
        "BTRFS error (device mmcblk0p2) in __btrfs_free_extent:5783: errno=-5 IO failure"),
    ("btrfs-io-error", "5.11.0-1020-aws", "btrfs/linux#761", Some("nvme2n1"),
        "BTRFS: error (device nvme2n1) in __btrfs_update_delayed_inode:1075: errno=-5 IO failure"),
    ("btrfs-io-error", "6.1.0-56 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "BTRFS: error (device dm-0: state A) in __btrfs_update_delayed_inode:1063: errno=-5 IO failure"),
    ("btrfs-io-error", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "BTRFS: error (device dm-0 state A) in __btrfs_update_delayed_inode:1027: errno=-5 IO failure"),
    ("btrfs-device-errors", "Ubuntu in UTM", "utmapp/UTM#4840", Some("vda3"),
        "BTRFS error (device vda3): bdev /dev/vda3 errs: wr 0, rd 0, flush 0, corrupt 1, gen 0"),
    ("btrfs-device-errors", "FEMU", "kdave/btrfs-progs#603", Some("nvme0n1"),
        "BTRFS error (device nvme0n1): bdev /dev/nvme0n1 errs: wr 135, rd 0, flush 0, corrupt 155, gen 0"),
    ("btrfs-device-errors", "5.10.0-46 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "BTRFS error (device dm-0): bdev /dev/mapper/bt errs: wr 1, rd 0, flush 0, corrupt 5, gen 0"),
    ("btrfs-device-errors", "7.3.4 Debian", "provoked: the disk below became dm-error", Some("dm-0"),
        "BTRFS error (device dm-0): bdev /dev/mapper/bt errs: wr 1, rd 0, flush 0, corrupt 5, gen 0"),
    ("btrfs-checksum", "Ubuntu in UTM", "utmapp/UTM#4840", Some("vda3"),
        "BTRFS warning (device vda3): csum failed root 257 ino 34956 off 0 csum 0xf5f4f143 expected csum 0x00000000 mirror 1"),
    ("btrfs-checksum", "FEMU", "kdave/btrfs-progs#603", Some("nvme0n1"),
        "BTRFS warning (device nvme0n1): csum failed root -9 ino 304 off 171753472 csum 0xdcc7ba9c expected csum 0x8941f998 mirror 1"),
    ("btrfs-checksum", "5.10.0-46 Debian", "provoked: one byte of a file overwritten", Some("dm-0"),
        "BTRFS warning (device dm-0): csum failed root 5 ino 257 off 28672 csum 0xed5e2b97 expected csum 0x85900024 mirror 1"),
    ("btrfs-checksum", "7.3.4 Debian", "provoked: one byte of a file overwritten", Some("dm-0"),
        "BTRFS warning (device dm-0): csum failed root 5 ino 257 off 28672 csum 0xed5e2b97 expected csum 0x85900024 mirror 1"),
    ("btrfs-error", "4.9.30 Debian", "digint/btrbk#174", Some("sdc1"),
        "BTRFS error (device sdc1): unable to find ref byte nr 658035507200 parent 0 root 971  owner 1 offset 0"),
    ("btrfs-error", "host with rpm-ostree", "coreos/rpm-ostree#4457", Some("sda3"),
        "BTRFS error (device sda3): block=5763170304 write time tree block corruption detected"),
    ("block-io-error", "Qubes dom0", "QubesOS/qubes-issues#7795", Some("sda"),
        "I/O error, dev sda, sector 3652355936 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2"),
    ("block-io-error", "Raspberry Pi, argon", "raspberrypi/linux#6661", Some("nvme0n1"),
        "I/O error, dev nvme0n1, sector 32545872 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"),
    ("block-failure", "Rancher host", "longhorn/longhorn#193", Some("sdb"),
        "blk_update_request: critical medium error, dev sdb, sector 0"),
    ("block-failure", "immortal", "longhorn/longhorn#2775", Some("sdf"),
        "print_req_error: critical medium error, dev sdf, sector 1811939592"),
    ("buffer-io-error", "Rancher host", "longhorn/longhorn#193", Some("sdb"),
        "Buffer I/O error on dev sdb, logical block 0, lost async page write"),
    ("buffer-io-error", "Qubes dom0", "QubesOS/qubes-issues#7795", Some("dm-4"),
        "Buffer I/O error on device dm-4, logical block 2920458"),
    ("nvme-timeout", "4.8.8 CentOS", "linux-nvme/nvme-cli#151", Some("nvme2"),
        "nvme nvme2: I/O 0 QID 0 timeout, reset controller"),
    ("nvme-timeout", "5.19 Ubuntu", "clearlinux/distribution#2121", Some("nvme0"),
        "nvme nvme0: I/O 14 QID 2 timeout, aborting"),
    ("nvme-timeout", "6.3-rc", "starfive-tech/linux#98", Some("nvme0"),
        "nvme nvme0: I/O 897 QID 2 timeout, completion polled"),
    ("nvme-timeout", "6.12.107 Debian", "provoked: memory decoding switched off", Some("nvme0"),
        "nvme nvme0: I/O tag 3 (0003) opcode 0x2 (I/O Cmd) QID 1 timeout, aborting req_op:READ(0) size:16384"),
    ("nvme-down", "Raspberry Pi, argon", "raspberrypi/linux#6661", Some("nvme0"),
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"),
    ("nvme-down", "Ubuntu on Rockchip (May)", "Joshua-Riek/ubuntu-rockchip#155", Some("nvme0"),
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS read failed (134)"),
    ("nvme-not-ready", "4.8.8 CentOS", "linux-nvme/nvme-cli#151", Some("nvme2"),
        "nvme nvme2: Device not ready; aborting reset"),
    ("nvme-not-ready", "host of a Cosmos+ OpenSSD (February 2019)", "Cosmos-OpenSSD/Cosmos-plus-OpenSSD#22", Some("nvme0"),
        "nvme nvme0: Device not ready; aborting initialisation"),
    ("nvme-not-ready", "Debian bookworm on SOQuartz (September 2023)", "Plebian-Linux/quartz64-images#42", Some("nvme0"),
        "nvme nvme0: Device not ready; aborting initialisation, CSTS=0x0"),
    ("nvme-removed", "4.8.8 CentOS", "linux-nvme/nvme-cli#151", Some("nvme3"),
        "nvme nvme3: Removing after probe failure status: -19"),
    ("nvme-removed", "Ubuntu on Rockchip (May)", "Joshua-Riek/ubuntu-rockchip#155", Some("nvme0"),
        "nvme nvme0: Removing after probe failure status: -19"),
    ("nvme-removed", "6.1.0-56 Debian", "provoked: CC.EN cleared at each reset", Some("nvme1"),
        "nvme nvme1: Removing after probe failure status: -5"),
    ("nvme-disabled", "ppc64 (February 2024)", "linux-nvme: EEH failure on ppc after subsystem reset", Some("nvme1"),
        "nvme nvme1: Disabling device after reset failure: -19"),
    ("nvme-disabled", "6.15-rc2 Power9", "linuxppc-dev: frozen PHB on IBM Power9", Some("nvme0"),
        "nvme nvme0: Disabling device after reset failure: -19"),
    ("nvme-disabled", "6.12.107 Debian", "provoked: CC.EN cleared at each reset", Some("nvme1"),
        "nvme nvme1: Disabling device after reset failure: -5"),
    ("nvme-disabled", "7.3.4 Debian", "provoked: CC.EN cleared at each reset", Some("nvme1"),
        "nvme nvme1: Disabling device after reset failure: -5"),
    ("scsi-offline", "asuswrt-merlin (November 2019)", "RMerl/asuswrt-merlin.ng#379", Some("0:0:0:0"),
        "sd 0:0:0:0: rejecting I/O to offline device"),
    ("scsi-offline", "dev-r7515-c (February 2025)", "longhorn/longhorn#9878", Some("15:0:0:1"),
        "sd 15:0:0:1: rejecting I/O to offline device"),
    ("scsi-offline", "5.10.0-46 Debian", "provoked: offline written to the device's state", Some("0:0:0:0"),
        "sd 0:0:0:0: rejecting I/O to offline device"),
    ("scsi-offline", "7.3.4 Debian", "provoked: offline written to the device's state", Some("0:0:0:0"),
        "sd 0:0:0:0: rejecting I/O to offline device"),
];

/// Lines that kernels really wrote and that matter to nobody here, though they look like it.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    // nodejs/help#2597: a program's own fault.
    "traps: node[9573] trap invalid opcode ip:16cdea9 sp:7ffcc78c3aa8 error:0 in node[400000+1e96000]",
    // The lines around the ones above.
    "\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.",
    "rcu: \t(t=21002 jiffies g=1292137 q=85 ncpus=2)",
    "rcu: Hierarchical SRCU implementation.",
    "NMI watchdog: Perf NMI watchdog permanently disabled",
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
    "{1}[Hardware Error]:  Error 0, type: recoverable",
    "mce: [Hardware Error]: Machine check events logged",
    "EDAC sbridge MC1: HANDLING MCE MEMORY ERROR",
    "Memory failure: 0xe16677: already hardware poisoned",
    // A process can do this to itself with userfaultfd: lore, uffd-unit-tests on 6.x.
    "MCE: Killing uffd-unit-tests:1321817 due to hardware memory corruption fault at 4631e000",
    "XFS (vda4): Unmount and run xfs_repair",
    "XFS (vda1): Ending clean mount",
    "EXT4-fs error: 1267 callbacks suppressed",
    "BTRFS info (device vda3): read error corrected: ino 0 off 254406656 (dev /dev/vda3 sector 513272)",
    "nvme nvme0: 4/0/0 default/read/poll queues",
    "nvme nvme0: Abort status: 0x0",
    // Around the lines that were provoked on 5.10 to 7.3.
    "Injecting memory failure for pfn 0x59d3 at process virtual address 0x7f938f9b8000",
    "MCE: Killing poke:432 due to hardware memory corruption fault at 7fa98de72a78",
    "mce: [Hardware Error]: RIP 33:<0000000000401ac7> ",
    "XFS (dm-0): Please unmount the filesystem and rectify the problem(s).",
    "XFS (dm-0): Ending clean mount",
    "dm-0: lost filesystem error report for type 5 error -117",
    "loop0: detected capacity change from 0 to 655360",
    "operation not supported error, dev loop0, sector 327728 op 0x9:(WRITE_ZEROES) flags 0x8000800 phys_seg 0 prio class 2",
    "BTRFS warning (device dm-0 state EA): Skipping commit of aborted transaction.",
    "nvme nvme0: Ignoring bogus Namespace Identifiers",
    "sd 0:0:0:0: [sda] Attached SCSI disk",
    "sd 7:0:0:1: [sdf] tag#5 Add. Sense: Unrecovered read error",
];

fn sifted(text: &str) -> Option<(&'static str, Option<String>)> {
    let mut found = None;
    let record = format!("3,1,1,-;{text}\n");
    Sifter::default().take(record.as_bytes(), &mut |event| {
        if let KernelEvent::Line(line) = event {
            assert_eq!(line.text, text[..text.len().min(240)]);
            found = Some((line.pattern.id, line.subject));
        }
    });
    found
}

#[test]
fn recorded_lines_are_known() {
    for (id, kernel, source, subject, line) in RECORDED {
        let found = sifted(line);
        let wanted = Some((*id, subject.map(str::to_owned)));
        assert_eq!(found, wanted, "{kernel}, {source}: {line}");
    }
}

#[test]
fn harmless_lines_are_not() {
    for line in HARMLESS {
        assert_eq!(sifted(line), None, "{line}");
    }
}

#[test]
fn a_journal_is_its_devices() {
    for (journal, device) in [
        ("dm-4-8", "dm-4"),
        ("dm-8-8", "dm-8"),
        ("nvme0n1p1-8", "nvme0n1p1"),
        ("sdb1", "sdb1"),
        ("dm-8", "dm-8"),
    ] {
        for line in [
            format!("Aborting journal on device {journal}."),
            format!("JBD2: Detected IO errors while flushing file data on {journal}"),
        ] {
            let subject = sifted(&line).and_then(|(_, subject)| subject);
            assert_eq!(subject.as_deref(), Some(device), "{line}");
        }
    }
}

#[test]
fn registry_is_whole() {
    for (i, pattern) in PATTERNS.iter().enumerate() {
        assert!(
            PATTERNS[..i].iter().all(|p| p.id != pattern.id),
            "{pattern:?} once"
        );
        assert!(!pattern.starts.is_empty() && pattern.starts.iter().all(|s| !s.is_empty()));
        let kernels: std::collections::BTreeSet<_> = RECORDED
            .iter()
            .filter(|recorded| recorded.0 == pattern.id)
            .map(|recorded| recorded.1)
            .collect();
        assert!(kernels.len() >= 2, "{pattern:?} is recorded of {kernels:?}");
    }
}

/// What node-problem-detector v1.36.0 looks for in its shipped `kernel-monitor.json` and `readonly-monitor.json`, by its
/// reasons; kills for memory are put together by `oom`.
#[test]
fn what_node_problem_detector_sees_is_seen() {
    #[rustfmt::skip]
    let lines = [
        ("TaskHung", "INFO: task dockerd:3946 blocked for more than 120 seconds."),
        ("DockerHung", "INFO: task docker:20744 blocked for more than 120 seconds."),
        ("UnregisterNetDevice", "unregister_netdevice: waiting for lo to become free. Usage count = 1"),
        ("KernelOops", "BUG: unable to handle kernel NULL pointer dereference at 0000000000000158"),
        ("KernelOops", "divide error: 0000 [#1] SMP"),
        ("Ext4Error", "EXT4-fs error (device dm-4) in ext4_setattr:4562: Journal has aborted"),
        ("Ext4Warning", "EXT4-fs warning (device dm-4): ext4_end_bio:343: I/O error 10 writing to inode 1182507 starting block 2920460)"),
        ("IOError", "Buffer I/O error on dev sdb, logical block 0, lost async page write"),
        ("XfsHasShutdown", "XFS (dm-4): I/O Error Detected. Shutting down filesystem"),
        ("MemoryReadError", "EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)"),
        ("CperHardwareErrorCorrected", "{1}[Hardware Error]: event severity: corrected"),
        ("CperHardwareErrorRecoverable", "{1}[Hardware Error]: event severity: recoverable"),
        ("CperHardwareErrorFatal", "{1}[Hardware Error]: event severity: fatal"),
        ("FilesystemIsReadOnly", "EXT4-fs (dm-4): Remounting filesystem read-only"),
    ];
    for (reason, line) in lines {
        assert!(sifted(line).is_some(), "{reason}: {line}");
    }
}
