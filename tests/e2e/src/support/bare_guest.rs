//! A bare guest: a machine with a kernel and memory of its own, in an emulator, for what would use up the memory of the machine that runs the
//! stories. It runs the agent, and has neither systemd nor a kubelet: on so little memory the disk decides how fast all of it is read again.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::control_plane::ControlPlane;
use super::daemon::{log_file, tail};
use super::namespaces::{self, ADDRESS};
use super::node_files::{self, file};
use super::{boot, output, programs};

/// Makes the disk, and the initial file system with the same files but for the text. Both have the drivers for disk and
/// network.
const IMAGE: &str = r#"
for program in "$AGENT" "$(command -v busybox)"; do
    cp "$program" root/bin/
    ldd "$program" | grep -o '/[^ ]*' | xargs -r cp -t root --parents --dereference
done
for module in drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci_modern_dev \
    drivers/virtio/virtio_pci drivers/block/virtio_blk net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
    cp "$KERNEL"/lib/modules/*/kernel/$module.ko root/modules/
    echo "insmod /modules/${module##*/}.ko" >>root/modules/insert
done
(cd root && find . | busybox cpio -o -H newc) >initial
yes 'a line of text' | head -c 64M >root/text
truncate -s 256M disk
PATH="$PATH:/usr/sbin:/sbin" mkfs.ext4 -q -d root disk
cp "$KERNEL"/boot/vmlinuz-* kernel
"#;

/// Runs twice: in the initial file system, then on the disk.
const INIT: &str = r"#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
if [ ! -b /dev/vda ]; then
    . /modules/insert
    until mount /dev/vda /root 2>/dev/null; do sleep 0.1; done
    exec switch_root /root /init
fi
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir /run/nodevigil
ifconfig lo up
ifconfig eth0 10.99.0.2 netmask 255.255.255.0 up
(echo -999 >/proc/self/oom_score_adj; exec nodevigil run) &
exec sh
";

/// A running guest. It is gone when it is dropped.
#[derive(Debug)]
pub struct BareGuest {
    directory: PathBuf,
    emulator: Child,
}

impl BareGuest {
    /// Creates the Node of that name and boots a guest whose agent reports on it. It takes some seconds until the agent runs.
    pub fn boot(plane: &ControlPlane, name: &str) -> Result<Self> {
        let directory = namespaces::work().join("nodes").join(name);
        let root = directory.join("root");
        for empty in ["bin", "dev", "modules", "proc", "root", "run", "sys", "var/lib/nodevigil"] {
            fs::create_dir_all(root.join(empty)).context("making the guest's directories")?;
        }
        let node = directory.join("node.json");
        fs::write(&node, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string())?;
        plane.kubectl(&["create", "--filename", &node.display().to_string()])?;
        let kubeconfig = plane.kubeconfig(&format!("nodevigil:{name}"), "nodevigil-agents")?;
        let settings = format!("[kubernetes]\nnode_name = \"{name}\"\n");
        let settings = file("/etc/nodevigil/config.d/60-guest.toml", settings, 0o644);
        for file in node_files::agent(kubeconfig)?.iter().chain(&[settings, file("/init", INIT, 0o755)]) {
            boot::write(&root, file)?;
        }
        let mut image = Command::new("sh");
        image.args(["-euc", IMAGE]).current_dir(&directory).env("AGENT", programs::agent()?);
        output(image.env("KERNEL", kernel()?)).context("making the guest's image")?;
        let emulator = emulate(&directory)?;
        Ok(Self { directory, emulator })
    }

    /// Types lines into the shell on its console.
    pub fn enter(&mut self, lines: &str) -> Result<()> {
        let console = self.emulator.stdin.as_mut().context("the emulator's input")?;
        writeln!(console, "{lines}").context("writing to the guest's console")
    }

    /// The end of what its console shows, with the agent's log.
    pub fn console(&self) -> String {
        tail(&self.directory.join("console"))
    }
}

impl Drop for BareGuest {
    fn drop(&mut self) {
        let _ = self.emulator.kill(); // it may have ended
        let _ = self.emulator.wait();
        let _ = fs::remove_dir_all(&self.directory); // it is in memory
    }
}

/// The files of a kernel's Debian package, in the directory that `NODEVIGIL_KERNEL` names.
fn kernel() -> Result<PathBuf> {
    let directory = std::env::var_os("NODEVIGIL_KERNEL");
    Ok(directory.context("NODEVIGIL_KERNEL is not set: start the stories by `make stories`")?.into())
}

/// Starts the emulator. The guest reaches the run's loopback by the address that nodes have for the API server.
fn emulate(directory: &Path) -> Result<Child> {
    let (console, errors) = log_file(&directory.join("console"))?;
    Command::new("qemu-system-x86_64")
        .current_dir(directory)
        // No KVM: not every machine has it. Nehalem: Debian 12's QEMU crashes when it emulates later processors.
        .args(["-accel", "tcg", "-cpu", "Nehalem-v1", "-m", "384", "-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-serial", "stdio", "-kernel", "kernel", "-initrd", "initial"])
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        // 64 MiB/s: a slow disk, and readers that wait for it leave the machine its processors.
        .args(["-drive", "file=disk,format=raw,if=virtio,cache=unsafe,throttling.bps-total=67108864"])
        .args(["-netdev", &format!("user,id=net,net=10.99.0.0/24,host={ADDRESS}")])
        .args(["-device", "virtio-net-pci,netdev=net"])
        .stdin(Stdio::piped())
        .stdout(console)
        .stderr(errors)
        .spawn()
        .context("starting qemu-system-x86_64")
}
