//! The disk of a guest with the real kubelet: its program, containerd's and runc's, and the units that run them from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::files::ADDRESS;
use super::support::boot::File;
use super::support::node_files::{self, file};
use super::support::tools;

/// Where the disk is in the guest.
const MOUNTED: &str = "/mnt";
/// What the guest's `/usr/bin/kubelet` links to.
pub(crate) const KUBELET: &str = "/mnt/kubelet";
/// Their sizes together, and what a file system needs for itself.
const MIB: u32 = 240;

/// Programs of this machine's packages.
const OF_PACKAGES: [&str; 3] = [
    "/usr/bin/containerd",
    "/usr/bin/containerd-shim-runc-v2",
    "/usr/sbin/runc",
];

/// Makes the disk, once, in this folder.
pub(crate) fn disk(folder: &Path) -> Result<PathBuf> {
    let disk = folder.join("programs");
    if disk.exists() {
        return Ok(disk);
    }
    let content = folder.join("programs.d");
    fs::create_dir_all(&content)?;
    let all = OF_PACKAGES.map(PathBuf::from).into_iter();
    for program in all.chain([tools::path("kubelet")?]) {
        let name = program.file_name().context("a program has a name")?;
        fs::copy(&program, content.join(name)).with_context(|| program.display().to_string())?;
    }
    fs::File::create(&disk)?.set_len(u64::from(MIB) << 20)?;
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-d"])
        .args([&content, &disk])
        .status()
        .context("starting mke2fs (Debian package e2fsprogs)")?;
    ensure!(made.success(), "mke2fs of {}: {made}", disk.display());
    fs::remove_dir_all(&content)?;
    Ok(disk)
}

/// The units that mount it and run what is on it, and what the kubelet must know of the guest.
pub(crate) fn files(name: &str, oom_score_adjust: i32) -> Vec<File> {
    let unit = |name: &str, text: &str| file(&format!("/etc/systemd/system/{name}"), text, 0o644);
    let path = format!("Environment=PATH={MOUNTED}:/usr/sbin:/usr/bin\n");
    vec![
        // No udev tells systemd of a disk here, so it is no mount unit.
        unit(
            "programs.service",
            &format!(
                "[Unit]\nDescription=The disk with the programs\nDefaultDependencies=no\n\
                 [Service]\nType=oneshot\nRemainAfterExit=yes\n\
                 ExecStart=/usr/bin/mount -t ext4 -o ro /dev/vdb {MOUNTED}\n"
            ),
        ),
        unit(
            "containerd.service",
            &format!(
                "[Unit]\nDescription=containerd\nAfter=programs.service\nRequires=programs.service\n\
                 [Service]\nType=notify\n{path}ExecStart={MOUNTED}/containerd\nDelegate=yes\n\
                 OOMScoreAdjust=-999\nRestart=always\n"
            ),
        ),
        unit(
            "kubelet.service.d/60-programs.conf",
            &format!(
                "[Unit]\nAfter=containerd.service network.service\nWants=containerd.service\n[Service]\n{path}"
            ),
        ),
        node_files::kubelet_defaults(
            name,
            &[
                format!("--node-ip={ADDRESS}"),
                // It sets that itself, whatever its unit says.
                format!("--oom-score-adj={oom_score_adjust}"),
            ],
        ),
    ]
}
