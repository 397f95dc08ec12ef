//! Lines that kernels have logged, each with where it was recorded.

use super::*;

/// Name of the pattern, source, line. What was provoked was so in virtual machines with Debian's kernels.
#[rustfmt::skip]
const RECORDED: &[(&str, &str, &str)] = &[
    ("hung task", "dotmesh-io/dotmesh#540", "INFO: task systemd:1 blocked for more than 120 seconds."),
    ("hung task", "moby/moby#44552", "INFO: task dockerd:3946 blocked for more than 120 seconds."),
    ("hung task", "containerd/containerd#5325", "INFO: task dockerd:1810 blocked for more than 328 seconds."),
    ("hung task", "bottlerocket-os/bottlerocket#4075", "INFO: task jbd2/nvme2n1-8:6604 blocked for more than 122 seconds."),
    ("soft lockup", "awslabs/amazon-eks-ami#454", "watchdog: BUG: soft lockup - CPU#5 stuck for 23s! [kworker/u16:2:62]"),
    ("NVMe failure", "tyriis/home-ops#7472", "nvme nvme1: I/O tag 27 (e01b) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller"),
    ("NVMe failure", "tyriis/home-ops#7472", "nvme nvme1: Disabling device after reset failure: -19"),
    ("hung task", "aws-neuron/aws-neuron-sdk#887", "INFO: task containerd-shim:28325 blocked for more than 120 seconds."),
    ("hung task", "5.10.0-46 Debian, provoked: the disk below suspended", "INFO: task jbd2/dm-0-8:123 blocked for more than 5 seconds."),
    ("hung task", "7.3.4 Debian, provoked: the disk below suspended", "INFO: task poke:139 blocked in I/O wait for more than 5 seconds."),
    ("soft lockup", "kubernetes/kubernetes#65142", "NMI watchdog: BUG: soft lockup - CPU#6 stuck for 22s! [kubelet:1663]"),
    ("soft lockup", "easzlab/kubeasz#300", "NMI watchdog: BUG: soft lockup - CPU#34 stuck for 22s! [runc:[1:CHILD]:185318]"),
    ("soft lockup", "lf-edge/eve#2653", "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [002-logging:310]"),
    ("soft lockup", "thesofproject/linux#5008", "watchdog: BUG: soft lockup - CPU#1 stuck for 45s! [rtcwake:72543]"),
    ("hard lockup", "linux-amlogic list: crtscts on a port without it", "watchdog: Watchdog detected hard LOCKUP on cpu 3"),
    ("hard lockup", "drm-misc: amdgpu_vkms_disable_vblank", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 1"),
    ("hard lockup", "dri-devel: syncobj_timeline, stress-enable-all-signal-all-forward", "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3"),
    ("RCU stall", "goharbor/harbor#14163", "INFO: rcu_sched self-detected stall on CPU { 0} (t=81782271 jiffies g=123789 c=123788 q=21698007)"),
    ("RCU stall", "goharbor/harbor#14163", "INFO: rcu_sched detected stalls on CPUs/tasks: { 0} (detected by 85 t=81782272 jiffies, g=123789, c=123788, q=21744209"),
    ("RCU stall", "skiffos/SkiffOS#147", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    ("RCU stall", "oxidecomputer/propolis#1153", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("RCU stall", "kernel/rcu/tree_exp.h of Linux 6.12", "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 94-...D } 21002 jiffies s: 85 root: 0x1/."),
    ("network device in use", "kubernetes/kubernetes#64743", "unregister_netdevice: waiting for eth0 to become free. Usage count = 1"),
    ("network device in use", "kubernetes/kubernetes#20096", "unregister_netdevice: waiting for lo to become free. Usage count = 1"),
    ("network device in use", "moby/moby#5618", "unregister_netdevice: waiting for lo to become free. Usage count = 3"),
    ("kernel oops", "google/cadvisor#2933", "BUG: unable to handle kernel NULL pointer dereference at 0000000000000158"),
    ("kernel oops", "google/cadvisor#2933", "Oops: 0000 [#1] SMP NOPTI"),
    ("kernel oops", "coreos/bugs#1240", "divide error: 0000 [#1] SMP"),
    ("kernel oops", "ashaffer/rt3573sta#2", "kernel BUG at net/core/skbuff.c:127!"),
    ("kernel oops", "ashaffer/rt3573sta#2", "invalid opcode: 0000 [#1] PREEMPT SMP"),
    ("kernel oops", "NVIDIA/k8s-device-plugin#941", "general protection fault, probably for non-canonical address 0x78d29c0722bf7aa1: 0000 [#1] SMP NOPTI"),
    ("kernel oops", "Aquantia/AQtion#32", "BUG: kernel NULL pointer dereference, address: 0000000000000008"),
    ("kernel oops", "apple/container#614", "Unable to handle kernel NULL pointer dereference at virtual address 00000000000000a0"),
    ("kernel oops", "apple/container#614", "Internal error: Oops: 0000000096000004 [#1] SMP"),
    ("uncorrected hardware error", "linux-acpi: AER of a fatal error is not printed", "{763}[Hardware Error]: event severity: fatal"),
    ("uncorrected hardware error", "intel-wired-lan: i40e in S5", "{1}[Hardware Error]: event severity: fatal"),
    ("uncorrected hardware error", "andikleen/mcelog#74", "{1}[Hardware Error]: event severity: recoverable"),
    ("uncorrected hardware error", "matrixorigin/matrixone#20374", "{7}[Hardware Error]: event severity: recoverable"),
    ("uncorrected hardware error", "drivers/firmware/efi/cper.c of Linux 6.12", "{1}[Hardware Error]: event severity: recoverable, section_type: memory error"),
    ("corrected hardware error", "nodejs/build#2894", "{77}[Hardware Error]: event severity: corrected"),
    ("corrected hardware error", "prometheus/node_exporter#3511", "{35}[Hardware Error]: event severity: corrected"),
    ("uncorrected hardware error", "linux-edac: skx, injected", "EDAC MC3: 1 UE memory read error on CPU_SrcID#0_MC#3_Chan#0_DIMM#0 (channel:0 slot:0 page:0x7e025e offset:0x400 grain:32 -  err_code:0x00a0:0x0090  SystemAddress:0x7e025e400 ProcessorSocketId:0x0 MemoryControllerId:0x3"),
    ("uncorrected hardware error", "linux-mm: recovery action for dirty page", "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (xxx xxx)"),
    ("corrected hardware error", "openstreetmap/operations#300", "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0 page:0x0 offset:0x0 grain:8 syndrome:0x0)"),
    ("corrected hardware error", "illinois-scicomp/machine-shop-maintenance#66", "EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2031c14 offset:0x940 grain:32 syndrome:0x0 -  OVERFLOW area:DRAM err_code:0001:0091 socket:0 ha:0 channel_mask:2 rank:1)"),
    ("corrected hardware error", "radiasoft/devops#134", "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0xee30a0 offset:0x0 grain:32 syndrome:0x0 -  area:DRAM err_code:0008:00c2 socket:1 ha:0 channel_mask:1 rank:0)"),
    ("uncorrected hardware error", "linux-mm: memory_failure() about ZONE_DEVICE pages", "mce: Uncorrected hardware memory error in user-access at af34214200"),
    ("uncorrected hardware error", "linux-kernel: machine check recovery broken in v6.9-rc1", "mce: Uncorrected hardware memory error in user-access at 8a398a400"),
    ("uncorrected hardware error", "5.10.0-46 Debian, provoked: machine check of a process's page by qemu's monitor", "mce: Uncorrected hardware memory error in user-access at 10459000"),
    ("uncorrected hardware error", "7.3.4 Debian, provoked: machine check of a process's page by qemu's monitor", "mce: Uncorrected hardware memory error in user-access at 3c1f0000"),
    ("uncorrected hardware error", "linux-mm: cellsrv", "Memory failure: 0x1840200: Killing cellsrv:33395 due to hardware memory corruption"),
    ("uncorrected hardware error", "5.10.0-46 Debian, provoked: machine check of a process's page by qemu's monitor", "Memory failure: 0x10459: Sending SIGBUS to poke:511 due to hardware memory corruption"),
    ("uncorrected hardware error", "7.3.4 Debian, provoked: machine check of a process's page by qemu's monitor", "Memory failure: 0x3c1f0: Sending SIGBUS to poke:115 due to hardware memory corruption"),
    ("recovered memory failure", "nccgroup/TriforceLinuxSyscallFuzzer#2", "MCE 0x318: recovery action for dirty LRU page: Recovered"),
    ("uncorrected hardware error", "linux-mm: memory_failure() about ZONE_DEVICE pages", "Memory failure: 0xaf34214: recovery action for reserved kernel page: Failed"),
    ("recovered memory failure", "6.1.0-56 Debian, provoked: memory scrubbing error by qemu's monitor", "Memory failure: 0x4c97: recovery action for dirty LRU page: Recovered"),
    ("recovered memory failure", "7.3.4 Debian, provoked: memory scrubbing error by qemu's monitor", "Memory failure: 0x124c6: recovery action for dirty LRU page: Recovered"),
    ("full connection table", "kubernetes/kubernetes#71261", "nf_conntrack: table full, dropping packet"),
    ("full connection table", "kubernetes-retired/kube-aws#476", "nf_conntrack: nf_conntrack: table full, dropping packet"),
    ("ext4 error", "kubernetes/kubernetes#12905", "EXT4-fs (dm-4): Remounting filesystem read-only"),
    ("ext4 error", "Joshua-Riek/ubuntu-rockchip#1060", "EXT4-fs (mmcblk0p2): Remounting filesystem read-only"),
    ("ext4 error", "7.3.4 Debian, provoked: trigger_fs_error", "EXT4-fs (dm-1): Remounting filesystem read-only"),
    ("ext4 error", "kubernetes/kubernetes#12905", "EXT4-fs error (device dm-4) in ext4_setattr:4562: Journal has aborted"),
    ("ext4 error", "longhorn/longhorn#6650", "EXT4-fs error (device sdf): ext4_check_bdev_write_error:217: comm filebeat: Error while async write back metadata"),
    ("ext4 error", "bit-team/backintime#2568", "EXT4-fs error (device sdd1): ext4_journal_check_start:83: comm rsync: Detected aborted journal"),
    ("ext4 error", "7.3.4 Debian, provoked: trigger_fs_error", "EXT4-fs error (device dm-1): trigger_test_error:130: comm init: 1"),
    ("ext4 warning", "raspberrypi/linux#703", "EXT4-fs warning (device dm-1): ext4_end_bio:316: I/O error -19 writing to inode 10223621 (offset 50331648 size 6148096 starting block 14409150)"),
    ("ext4 warning", "QubesOS/qubes-issues#7795", "EXT4-fs warning (device dm-4): ext4_end_bio:343: I/O error 10 writing to inode 1182507 starting block 2920460)"),
    ("ext4 warning", "7.3.4 Debian, provoked: the disk below became dm-error", "EXT4-fs warning (device dm-0): ext4_end_bio:360: I/O error 10 writing to inode 12 starting block 8963)"),
    ("ext4 error", "longhorn/longhorn#6650", "EXT4-fs (sdi): I/O error while writing superblock"),
    ("ext4 error", "luxonis/depthai-python#532", "EXT4-fs (sda1): I/O error while writing superblock"),
    ("ext4 error", "5.10.0-46 Debian, provoked: the disk below became dm-error", "EXT4-fs (dm-0): I/O error while writing superblock"),
    ("ext4 error", "Joshua-Riek/ubuntu-rockchip#1060", "EXT4-fs (mmcblk0p2): failed to convert unwritten extents to written extents -- potential data loss!  (inode 257144, error -30)"),
    ("ext4 error", "longhorn/longhorn#4925", "EXT4-fs (sdg): failed to convert unwritten extents to written extents -- potential data loss!  (inode 262194, error -30)"),
    ("ext4 error", "linux-ext4: ext4 errors with full filesystem", "EXT4-fs (sda5): This should not happen!! Data will be lost"),
    ("ext4 error", "sonic-net/sonic-buildimage#24437", "EXT4-fs (loop1): This should not happen!! Data will be lost"),
    ("ext4 error", "kubernetes/kubernetes#12905", "Aborting journal on device dm-4-8."),
    ("ext4 error", "sonic-net/sonic-buildimage#23146", "Aborting journal on device loop1-8."),
    ("ext4 error", "7.3.4 Debian, provoked: trigger_fs_error", "Aborting journal on device dm-1-8."),
    ("ext4 error", "luxonis/depthai-python#532", "JBD2: Detected IO errors while flushing file data on sda1-8"),
    ("ext4 error", "5.10.0-46 Debian, provoked: the disk below became dm-error", "JBD2: Detected IO errors while flushing file data on dm-0-8"),
    ("ext4 error", "7.3.4 Debian, provoked: the disk below became dm-error", "JBD2: Detected IO errors -5 while flushing file data on dm-0-8"),
    ("XFS shutdown", "kubernetes/node-problem-detector#845", "XFS (dm-4): I/O Error Detected. Shutting down filesystem"),
    ("XFS shutdown", "stratis-storage/stratisd#812", "XFS (dm-11): Corruption of in-memory data detected.  Shutting down filesystem"),
    ("XFS shutdown", "5.10.0-46 Debian, provoked: the disk below became dm-error", "XFS (dm-0): Log I/O Error Detected. Shutting down filesystem"),
    ("XFS shutdown", "siderolabs/talos#8733", "XFS (sdb6): Filesystem has been shut down due to log error (0x2)."),
    ("XFS shutdown", "linux-xfs: generic/648 metadata corruption", "XFS (dm-0): Filesystem has been shut down due to log error (0x2)."),
    ("XFS shutdown", "stratis-storage/stratisd#812", "XFS (dm-11): xfs_do_force_shutdown(0x8) called from line 3486 of file fs/xfs/xfs_inode.c.  Return address = 00000000cc36f40e"),
    ("XFS shutdown", "kubernetes/node-problem-detector#845", "XFS (dm-4): xfs_do_force_shutdown(0x1) called from line 1788 of file fs/xfs/xfs_inode.c.  Return address = 000000009d022bf1"),
    ("XFS error", "kubernetes/node-problem-detector#845", "XFS (dm-4): Corruption detected. Unmount and run xfs_repair"),
    ("XFS error", "vitalif/vitastor#14", "XFS (nbd0): Metadata corruption detected at xfs_dinode_verify.part.0+0x172/0x640 [xfs], inode 0x14506b6d dinode"),
    ("XFS error", "coreos/fedora-coreos-tracker#784", "XFS (vda4): Metadata CRC error detected at xfs_dquot_buf_verify_crc+0xe6/0x120 [xfs], xfs_dquot block 0x1478 xfs_dquot_buf_verify_crc"),
    ("XFS error", "xfs list: metadata CRC error upon unclean unmount", "XFS (sda1): Metadata CRC error detected at xfs_agi_read_verify+0x5e/0x110 [xfs], block 0x2"),
    ("XFS error", "5.10.0-46 Debian, provoked: two bytes of an AGI overwritten", "XFS (dm-0): Metadata CRC error detected at xfs_agi_read_verify+0xe9/0x120 [xfs], xfs_agi block 0x2 "),
    ("XFS error", "7.3.4 Debian, provoked: two bytes of an AGI overwritten", "XFS (dm-0): Metadata CRC error detected at xfs_agi_read_verify+0xde/0x120 [xfs], xfs_agi block 0x2 "),
    ("XFS error", "kubernetes/node-problem-detector#845", "XFS (dm-4): Internal error xfs_iunlink_remove at line 2038 of file fs/xfs/xfs_inode.c.  Caller xfs_ifree+0x33/0x130 [xfs]"),
    ("XFS error", "wiki.redatek.de: XFS after an update of the kernel", "XFS (dm-0): Internal error i != 1 at line 481 of file fs/xfs/libxfs/xfs_alloc.c. Caller xfs_alloc_fixup_trees+0x198/0x3b0 [xfs]"),
    ("XFS error", "6.1.0-56 Debian, provoked: a record of free space changed by xfs_db", "XFS (dm-0): Internal error i != 1 at line 498 of file fs/xfs/libxfs/xfs_alloc.c.  Caller xfs_alloc_fixup_trees+0x333/0x3b0 [xfs]"),
    ("XFS error", "7.3.4 Debian, provoked: a record of free space changed by xfs_db", "XFS (dm-0): Internal error i != 1 at line 628 of file fs/xfs/libxfs/xfs_alloc.c.  Caller xfs_alloc_fixup_trees+0x9f/0x560 [xfs]"),
    ("XFS error", "dm-vdo/kvdo#25", "XFS (dm-7): metadata I/O error: block 0x280000010 (\"xlog_bread_noalign\") error 5 numblks 8"),
    ("XFS error", "coreos/fedora-coreos-tracker#784", "XFS (vda4): metadata I/O error in \"xfs_dquot_disk_read+0x14a/0x220 [xfs]\" at daddr 0x1478 len 8 error 74"),
    ("XFS error", "7.3.4 Debian, provoked: two bytes of an AGI overwritten", "XFS (dm-0): metadata I/O error in \"xfs_read_agi+0xbc/0x180 [xfs]\" at daddr 0x2 len 1 error 74"),
    ("XFS error", "siderolabs/talos#8733", "XFS (sdb6): log I/O error -5"),
    ("XFS error", "alain.apigban.com: another I/O error", "XFS (sdb1): log I/O error -5"),
    ("XFS error", "5.10.0-46 Debian, provoked: the disk below became dm-error", "XFS (dm-0): log I/O error -5"),
    ("I/O error", "stratis-storage/stratisd#812", "XFS (dm-11): writeback error on sector 738263040"),
    ("I/O error", "linux-fsdevel: jump labels on 6.11-rc1", "sda3: writeback error on inode 111200510, offset 9166848, sector 24924992"),
    ("I/O error", "5.10.0-46 Debian, provoked: the disk below became dm-error", "dm-0: writeback error on inode 131, offset 61440, sector 312"),
    ("I/O error", "7.3.4 Debian, provoked: the disk below became dm-error", "dm-0: writeback error on inode 131, offset 0, sector 192"),
    ("Btrfs error", "6.12.107 Debian, provoked: the disk below became dm-error", "BTRFS error (device dm-0 state A): Transaction aborted (error -5)"),
    ("Btrfs error", "7.3.4 Debian, provoked: the disk below became dm-error", "BTRFS error (device dm-0 state A): Transaction 8 aborted (-EIO)"),
    ("Btrfs error", "xbianonpi/xbian#522", "BTRFS error (device mmcblk0p2) in __btrfs_free_extent:5783: errno=-5 IO failure"),
    ("Btrfs error", "btrfs/linux#761", "BTRFS: error (device nvme2n1) in __btrfs_update_delayed_inode:1075: errno=-5 IO failure"),
    ("Btrfs error", "6.1.0-56 Debian, provoked: the disk below became dm-error", "BTRFS: error (device dm-0: state A) in __btrfs_update_delayed_inode:1063: errno=-5 IO failure"),
    ("Btrfs error", "7.3.4 Debian, provoked: the disk below became dm-error", "BTRFS: error (device dm-0 state A) in __btrfs_update_delayed_inode:1027: errno=-5 IO failure"),
    ("Btrfs error", "utmapp/UTM#4840", "BTRFS error (device vda3): bdev /dev/vda3 errs: wr 0, rd 0, flush 0, corrupt 1, gen 0"),
    ("Btrfs error", "kdave/btrfs-progs#603", "BTRFS error (device nvme0n1): bdev /dev/nvme0n1 errs: wr 135, rd 0, flush 0, corrupt 155, gen 0"),
    ("Btrfs error", "5.10.0-46 Debian, provoked: the disk below became dm-error", "BTRFS error (device dm-0): bdev /dev/mapper/bt errs: wr 1, rd 0, flush 0, corrupt 5, gen 0"),
    ("Btrfs error", "utmapp/UTM#4840", "BTRFS warning (device vda3): csum failed root 257 ino 34956 off 0 csum 0xf5f4f143 expected csum 0x00000000 mirror 1"),
    ("Btrfs error", "kdave/btrfs-progs#603", "BTRFS warning (device nvme0n1): csum failed root -9 ino 304 off 171753472 csum 0xdcc7ba9c expected csum 0x8941f998 mirror 1"),
    ("Btrfs error", "5.10.0-46 Debian, provoked: one byte of a file overwritten", "BTRFS warning (device dm-0): csum failed root 5 ino 257 off 28672 csum 0xed5e2b97 expected csum 0x85900024 mirror 1"),
    ("Btrfs error", "digint/btrbk#174", "BTRFS error (device sdc1): unable to find ref byte nr 658035507200 parent 0 root 971  owner 1 offset 0"),
    ("Btrfs error", "coreos/rpm-ostree#4457", "BTRFS error (device sda3): block=5763170304 write time tree block corruption detected"),
    ("I/O error", "QubesOS/qubes-issues#7795", "I/O error, dev sda, sector 3652355936 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2"),
    ("I/O error", "raspberrypi/linux#6661", "I/O error, dev nvme0n1, sector 32545872 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2"),
    ("I/O error", "7.3.4 Debian, provoked: offline written to the device's state", "I/O error, dev sda, sector 0 op 0x0:(READ) flags 0x880700 phys_seg 4 prio class 2"),
    ("I/O error", "longhorn/longhorn#193", "blk_update_request: critical medium error, dev sdb, sector 0"),
    ("I/O error", "longhorn/longhorn#2775", "print_req_error: critical medium error, dev sdf, sector 1811939592"),
    ("I/O error", "longhorn/longhorn#193", "Buffer I/O error on dev sdb, logical block 0, lost async page write"),
    ("I/O error", "QubesOS/qubes-issues#7795", "Buffer I/O error on device dm-4, logical block 2920458"),
    ("I/O error", "7.3.4 Debian, provoked: the disk below became dm-error", "Buffer I/O error on device dm-0, logical block 8963"),
    ("NVMe failure", "linux-nvme/nvme-cli#151", "nvme nvme2: I/O 0 QID 0 timeout, reset controller"),
    ("NVMe failure", "clearlinux/distribution#2121", "nvme nvme0: I/O 14 QID 2 timeout, aborting"),
    ("NVMe failure", "6.12.107 Debian, provoked: memory decoding switched off", "nvme nvme0: I/O tag 3 (0003) opcode 0x2 (I/O Cmd) QID 1 timeout, aborting req_op:READ(0) size:16384"),
    ("NVMe failure", "raspberrypi/linux#6661", "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"),
    ("NVMe failure", "Joshua-Riek/ubuntu-rockchip#155", "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS read failed (134)"),
    ("NVMe failure", "linux-nvme/nvme-cli#151", "nvme nvme2: Device not ready; aborting reset"),
    ("NVMe failure", "Cosmos-OpenSSD/Cosmos-plus-OpenSSD#22", "nvme nvme0: Device not ready; aborting initialisation"),
    ("NVMe failure", "Plebian-Linux/quartz64-images#42", "nvme nvme0: Device not ready; aborting initialisation, CSTS=0x0"),
    ("NVMe failure", "linux-nvme/nvme-cli#151", "nvme nvme3: Removing after probe failure status: -19"),
    ("NVMe failure", "Joshua-Riek/ubuntu-rockchip#155", "nvme nvme0: Removing after probe failure status: -19"),
    ("NVMe failure", "6.1.0-56 Debian, provoked: CC.EN cleared at each reset", "nvme nvme1: Removing after probe failure status: -5"),
    ("NVMe failure", "linux-nvme: EEH failure on ppc after subsystem reset", "nvme nvme1: Disabling device after reset failure: -19"),
    ("NVMe failure", "linuxppc-dev: frozen PHB on IBM Power9", "nvme nvme0: Disabling device after reset failure: -19"),
    ("NVMe failure", "6.12.107 Debian, provoked: CC.EN cleared at each reset", "nvme nvme1: Disabling device after reset failure: -5"),
    ("disk controller that does not answer", "kubernetes/kubernetes#85880", "megaraid_sas 0000:5a:00.0: [30]waiting for 65 commands to complete for scsi0"),
    ("disk controller that does not answer", "drivers/scsi/scsi_lib.c of Linux 6.12", "sd 0:0:0:0: [sda] timing out command, waited 180s"),
    ("ext4 error", "gardenlinux/gardenlinux#263", "EXT4-fs error (device nvme19n1): ext4_wait_block_bitmap:517: comm etcd: Cannot read block bitmap - block_group = 34, block_bitmap = 1048578"),
    ("ext4 warning", "gardenlinux/gardenlinux#263", "EXT4-fs warning (device nvme19n1): htree_dirblock_to_tree:997: inode #1048579: lblock 0: comm etcd: error -5 reading directory block"),
    ("offline disk", "RMerl/asuswrt-merlin.ng#379", "sd 0:0:0:0: rejecting I/O to offline device"),
    ("offline disk", "longhorn/longhorn#9878", "sd 15:0:0:1: rejecting I/O to offline device"),
    ("network transmit timeout", "net/sched/sch_generic.c of Linux 5.10", "NETDEV WATCHDOG: eth0 (ena): transmit queue 0 timed out"),
    ("workqueue lockup", "openbmc/openbmc#3440", "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 137s!"),
    ("workqueue lockup", "koverstreet/bcachefs#114", "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x1 nice=0 stuck for 23152s!"),
    ("damaged memory management", "mm/page_alloc.c of Linux 4.4", "BUG: Bad page state in process kswapd0  pfn:1e5f62"),
    ("damaged memory management", "mm/memory.c of Linux 6.12", "BUG: Bad page map in process containerd-shim  pte:8000000103a2f867 pmd:104b1d067"),
    ("damaged memory management", "kernel/fork.c of Linux 6.12", "BUG: Bad rss-counter state mm:00000000d3f1c0f0 type:MM_ANONPAGES val:3"),
    ("crash of PID 1", "arch/x86/mm/fault.c of Linux 6.12", "systemd[1]: segfault at 10 ip 00007f3a3c2b2f4c sp 00007ffd0a7a6b90 error 4 in libsystemd-shared-257.so[7f3a3c200000+1d6000]"),
    ("crash of PID 1", "arch/x86/kernel/traps.c of Linux 6.12", "traps: systemd[1] general protection fault ip:7f3a3c2b2f4c sp:7ffd0a7a6b90 error:0 in libc.so.6[7f3a3c200000+1d6000]"),
    ("XFS error", "fs/xfs/xfs_log.c of Linux 6.12", "XFS (sda6): log mount/recovery failed: error -22"),
    ("XFS error", "fs/xfs/xfs_log.c of Linux 5.15", "XFS (nvme1n1): Corruption warning: Metadata has LSN (12:33904) ahead of current LSN (12:33880). Please unmount and run xfs_repair (>= v4.3) to resolve."),
    ("XFS error", "fs/xfs/xfs_log.c of Linux 4.4", "XFS (dm-3): xfs_log_force: error -5 returned."),
    ("XFS error", "fs/xfs/xfs_buf.c of Linux 5.10", "XFS (sdb1): Failing async write on buffer block 0x1388. Retrying async write."),
    ("XFS without memory", "fs/xfs/kmem.c of Linux 6.1", "XFS: prog(3289) possible memory allocation deadlock size 65624 in kmem_alloc (mode:0x2400240)"),
    ("XFS without memory", "fs/xfs/kmem.c of Linux 4.4", "XFS: possible memory allocation deadlock in kmem_alloc (mode:0x250)"),
    ("ext4 error", "fs/jbd2/journal.c of Linux 5.10", "JBD2: Error -5 detected when updating journal superblock for sda1-8."),
    ("ext4 error", "fs/jbd2/journal.c of Linux 6.12", "JBD2: I/O error when updating journal superblock for sda1-8."),
    ("Btrfs error", "fs/btrfs/disk-io.c of Linux 6.12", "BTRFS warning (device sda3): lost super block write due to IO error on /dev/sda3 (-5)"),
    ("Btrfs error", "fs/btrfs/disk-io.c of Linux 6.12", "BTRFS warning (device sda3): checksum verify failed on logical 30457856 mirror 1 wanted 0x5b6ffd5f found 0x8e2b8f7a level 0"),
    ("NFS server that does not answer", "net/sunrpc/clnt.c of Linux 6.12", "nfs: server 10.0.0.9 not responding, still trying"),
    ("NFS server that does not answer", "net/sunrpc/clnt.c of Linux 4.4", "nfs: server nas not responding, timed out"),
    ("NFS server that does not answer", "fs/smb/client/connect.c of Linux 6.12", "CIFS: VFS: \\x5c\\x5cnas has not responded in 180 seconds. Reconnecting..."),
    ("full thin pool", "drivers/md/dm-thin.c of Linux 6.12", "device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode"),
    ("full thin pool", "drivers/md/dm-thin.c of Linux 4.4", "device-mapper: thin: 253:4: switching pool to out-of-data-space mode"),
    ("device mapper failure", "drivers/md/dm-thin.c of Linux 6.12", "device-mapper: thin: 253:4: metadata operation 'dm_pool_commit_metadata' failed: error = -5"),
    ("device mapper failure", "drivers/md/dm-thin.c of Linux 6.12", "device-mapper: thin: 253:4: switching pool to read-only mode"),
    ("device mapper failure", "drivers/md/dm-mpath.c of Linux 6.12", "device-mapper: multipath: 253:1: Failing path 8:16."),
    ("device mapper failure", "drivers/md/dm-mpath.c of Linux 4.4", "device-mapper: multipath: Failing path 8:16."),
    ("device mapper failure", "drivers/md/dm-verity-target.c of Linux 6.12", "device-mapper: verity: 254:0: data block 1 is corrupted"),
    ("RAID failure", "drivers/md/raid1.c of Linux 6.12", "md/raid1:md0: Disk failure on sdb1, disabling device."),
    ("RAID failure", "drivers/md/raid5.c of Linux 6.12", "md/raid:md0: Cannot continue operation (2/4 failed)."),
    ("RAID failure", "drivers/md/raid1.c of Linux 5.10", "md/raid1:md0: sda: unrecoverable I/O read error for block 2048"),
    ("network device failure", "amzn/amzn-drivers#285", "ena 0000:00:06.0 eth0: Keep alive watchdog timeout."),
    ("network device failure", "drivers/net/ethernet/mellanox/mlx5/core/health.c of Linux 6.12", "mlx5_core 0000:3b:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count"),
    ("network device failure", "drivers/net/ethernet/intel/e1000e of Linux 6.12", "e1000e 0000:00:1f.6 eno1: Detected Hardware Unit Hang:"),
    ("full connection table", "net/netfilter/nf_conntrack_core.c of Linux 6.12", "nf_conntrack: nf_conntrack: table full in netns 4026532573, dropping packet"),
    ("full neighbour table", "net/core/neighbour.c of Linux 6.12", "neighbour: arp_cache: neighbor table overflow!"),
    ("full neighbour table", "net/core/neighbour.c of Linux 6.12", "neighbour: ndisc_cache: neighbor table overflow!"),
    ("network transmit timeout", "net/sched/sch_generic.c of Linux 6.12", "ena 0000:00:05.0 ens5: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5001 ms"),
];

/// Lines that resemble a problem of the node but report none.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
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
    "[Hardware Error]: event severity: fatal",
    "cgroup: fork rejected by pids controller in /kubepods/pod1",
    "mlx5_core 0000:3b:00.0 eth0: TX timeout detected",
    "veth807b9e2: entered disabled state",
    // Of hosts without a problem: drives without a medium, loop devices, hints that a disk does not take, a lost interrupt.
    "blk_update_request: I/O error, dev fd0, sector 0",
    "print_req_error: I/O error, dev fd0, sector 0",
    "blk_update_request: critical target error, dev sr0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    "Buffer I/O error on dev sr0, logical block 0, async page read",
    "Buffer I/O error on device fd0, logical block 0",
    "Buffer I/O error on dev loop3, logical block 0, async page read",
    "I/O error, dev loop0, sector 0 op 0x3:(DISCARD)",
    "blk_update_request: I/O error, dev loop5, sector 0 op 0x1:(WRITE) flags 0x800 phys_seg 0 prio class 0",
    "critical target error, dev sda, sector 2048 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",
    "I/O error, dev mmcblk0rpmb, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    "nvme nvme0: I/O 12 QID 3 timeout, completion polled",
    "nvme nvme0: I/O tag 3 (0003) QID 1 timeout, completion polled",
    "{1}[Hardware Error]: event severity: recoverable, section_type: PCIe error",
    // starfive-tech/linux#98, lkrg-org/lkrg#189.
    "nvme nvme0: I/O 897 QID 2 timeout, completion polled",
    "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 0-... } 6 jiffies s: 85 root: 0x1/.",
    "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 6 jiffies",
    "INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... P1207 } 21 jiffies s: 133 root: 0x8/.",
    "device-mapper: thin: 253:4: switching pool to write mode",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "kubelet: page allocation failure: order:4, mode:0xc0cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)",
    // A program with the name `INFO: rcu_ x`, and one with the name `Oops: [#1]`.
    "INFO: rcu_ x invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "Oops: [#1] invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
];

fn name(text: &str, level: u8) -> Option<&'static str> {
    find(text, level).map(|index| pattern(index).name.as_str())
}

#[test]
fn recorded_lines_have_their_pattern() {
    for (pattern, source, line) in RECORDED {
        assert_eq!(name(line, 4), Some(*pattern), "{source}: {line}");
    }
}

#[test]
fn each_pattern_has_recorded_lines() {
    toml::from_str::<Table>(include_str!("patterns.toml")).unwrap();
    for pattern in &TABLE.patterns {
        let lines = RECORDED.iter().filter(|(name, ..)| *name == pattern.name).count();
        assert!(lines >= 2, "{}: {lines}", pattern.name);
    }
}

#[test]
fn other_lines_have_none() {
    for line in OTHERS {
        assert_eq!(name(line, 3), None, "{line}");
    }
}

#[test]
fn a_program_whose_name_resembles_a_problem_has_none() {
    let crashed =
        "kernel BUG at [812]: segfault at 0 ip 0 sp 0 error 4 in EDAC MC0: 1 UE due to hardware memory corruption";
    assert_eq!(name(crashed, 6), None);
    assert_eq!(name("kernel BUG at : page allocation failure: order:9, mode:0xc0cc0", 4), None);
}

#[test]
fn some_lines_count_at_a_less_severe_level() {
    for (line, level) in [
        ("device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode", 6),
        ("device-mapper: thin: 253:4: switching pool to fail mode", 6),
        ("neighbour: arp_cache: neighbor table overflow!", 6),
        ("traps: systemd[1] trap invalid opcode ip:55d0c0a0 sp:7ffc error:0 in systemd[55d0+1000]", 6),
        ("nfs: server nas not responding, still trying", 5),
    ] {
        assert!(name(line, level).is_some(), "{line}");
        assert_eq!(name(line, level + 1), None, "{line}");
    }
    // The names of programs: `systemd[1] trap`, and one of another pid.
    for line in
        ["traps: systemd[1] trap[77] trap int3 ip:1 sp:2 error:0", "traps: systemd[812] trap invalid opcode ip:1"]
    {
        assert_eq!(name(line, 6), None, "{line}");
    }
    assert_eq!(name("INFO: task kubelet:7 blocked for more than 122 seconds.", 5), None);
    for (level, line) in &TABLE.less_severe {
        let start = line.split('*').next().map_or(0, str::len);
        assert!(*level < 6 || start > "traps: ".len() + 15 || (start > 15 && !line.starts_with("traps: ")), "{line}");
    }
}
