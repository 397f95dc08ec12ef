//! The files that make the guest a node: what the nodes of the other tests have, with the real kernel's means where those
//! lack them (PID 1 raises limits here), and the kubelet, or its stand-in.

use anyhow::Result;

use super::guest::Setting;
use super::programs;
use super::support::boot::File;
use super::support::control_plane::ControlPlane;
use super::support::enter;
use super::support::node_files::{self, Ports, file};

/// Units of the image's systemd that give a guest nothing, or that an emulated processor waits seconds for.
pub(crate) const MASKED: [&str; 28] = [
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udev-trigger.service",
    "systemd-udev-settle.service",
    "systemd-timesyncd.service",
    "systemd-hwdb-update.service",
    "systemd-modules-load.service",
    "systemd-pstore.service",
    "systemd-firstboot.service",
    "systemd-sysusers.service",
    "systemd-machine-id-commit.service",
    "systemd-remount-fs.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-random-seed.service",
    "systemd-boot-system-token.service",
    "systemd-journal-flush.service",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "kmod-static-nodes.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
];

const JOURNALD: &str =
    "[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\nAudit=no\nRateLimitIntervalSec=0\n";

/// What the test's own programs run in: they must see the end of every load.
const LAB: &str = "[Unit]\nDescription=The test's own\n[Slice]\nMemoryMin=24M\nCPUWeight=1000\n";

/// The guest's own address.
pub(crate) const ADDRESS: &str = "10.99.0.15";

/// The units of the guest's target.
const WANTS: [&str; 8] = [
    "systemd-journald.service",
    "dbus.service",
    "network.service",
    "conductor.service",
    "kubepods.slice",
    "kubelet.service",
    "nodevigil-helper.socket",
    "nodevigil.service",
];

/// The unit that limits PID 1 elsewhere is not needed here: systemd gives the agent its `LimitMEMLOCK=`.
const NOT_HERE: [&str; 2] = [
    "/etc/systemd/system/nodevigil.service.d/50-lab.conf",
    "/etc/systemd/journald.conf.d/50-lab.conf",
];

/// All of them.
pub(crate) fn all(
    plane: &ControlPlane,
    name: &str,
    setting: &Setting,
    conductor: &str,
) -> Result<Vec<File>> {
    let user = format!("system:node:{name}");
    let kubelet = plane.kubeconfig(&user, &["system:nodes"], enter::ADDRESS)?;
    let ports = Ports {
        kubelet: 10250,
        healthz: 10248,
    };
    let unit = |name: &str, text: &str| file(&format!("/etc/systemd/system/{name}"), text, 0o644);
    let mut files = node_files::common(name, &WANTS.map(str::to_owned));
    files.extend(node_files::joined(ports, plane.ca(), &kubelet));
    files.extend(node_files::agent(&plane.agent_kubeconfig(name)?)?);
    files.retain(|file| !NOT_HERE.contains(&file.path.as_str()));
    files.extend([
        file(
            "/etc/systemd/journald.conf.d/50-guest.conf",
            JOURNALD,
            0o644,
        ),
        unit("lab.slice", LAB),
        unit(
            "kubepods.slice",
            "[Unit]\nDescription=All pods\n[Slice]\nMemoryAccounting=yes\n",
        ),
        unit("network.service", &network_unit()),
        unit("conductor.service", &conductor_unit(conductor)),
        unit("kubelet.service.d/50-guest.conf", &kubelet_drop_in(setting)),
    ]);
    if setting.real_kubelet {
        files.extend(programs::files(name, setting.kubelet_oom_score_adjust));
    } else {
        files.push(node_files::kubelet_defaults(name, &[]));
    }
    Ok(files)
}

fn network_unit() -> String {
    format!(
        "[Unit]\nDescription=The guest's address\nDefaultDependencies=no\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/busybox ip link set lo up\n\
         ExecStart=/bin/busybox ip addr add {ADDRESS}/24 dev eth0\n\
         ExecStart=/bin/busybox ip link set eth0 up\n"
    )
}

fn conductor_unit(address: &str) -> String {
    format!(
        "[Unit]\nDescription=Does what the test says\nAfter=network.service\nWants=network.service\n\
         [Service]\nExecStart=/usr/bin/guest conduct {address}\nSlice=lab.slice\nOOMScoreAdjust=-1000\n\
         KillMode=process\nLimitMEMLOCK=infinity\nMemoryMin=16M\n"
    )
}

fn kubelet_drop_in(setting: &Setting) -> String {
    format!(
        "[Service]\nRestartSec=3\nOOMScoreAdjust={}\n",
        setting.kubelet_oom_score_adjust
    )
}
