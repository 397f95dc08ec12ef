//! The first process in the initial file system: loads the drivers, lays the run's own files over the root file system of the
//! image, and becomes the real systemd there.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_move};

use crate::Outcome;

/// Where the image's root is mounted at first.
const ROOT: &str = "/mnt";

/// Does all of it; returns only what went wrong, which the kernel then makes a panic of.
pub(crate) fn run() -> Outcome {
    let done = boot();
    if let Err(error) = &done {
        if let Ok(mut console) = fs::OpenOptions::new().write(true).open("/dev/console") {
            let _ = writeln!(console, "guest init: {error}");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    done
}

fn boot() -> Outcome {
    let none = None::<&std::ffi::CStr>;
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        fs::create_dir_all(at)?;
        mount(kind, at, kind, MountFlags::empty(), none)
            .map_err(|why| format!("mounting {at}: {why}"))?;
    }
    for line in fs::read_to_string("/modules/order")?.lines() {
        let file = fs::File::open(format!("/modules/{line}"))?;
        rustix::system::finit_module(&file, &CString::default(), 0)
            .map_err(|why| format!("loading {line}: {why}"))?;
    }
    let began = Instant::now();
    while !Path::new("/dev/vda").exists() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err("there is no /dev/vda".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::create_dir_all(ROOT)?;
    mount("/dev/vda", ROOT, "ext4", MountFlags::empty(), none)
        .map_err(|why| format!("mounting /dev/vda: {why}"))?;
    lay_over(Path::new("/files"), Path::new(ROOT))?;
    // What stays here stays in memory for good.
    for path in ["/files", "/modules"] {
        fs::remove_dir_all(path)?;
    }
    let _ = fs::remove_file("/init"); // running, so gone when this process has become systemd
    for at in ["/proc", "/sys", "/dev"] {
        let there = format!("{ROOT}{at}");
        fs::create_dir_all(&there)?;
        mount_move(at, &there).map_err(|why| format!("moving {at}: {why}"))?;
    }
    std::env::set_current_dir(ROOT)?;
    mount_move(".", "/").map_err(|why| format!("moving the root: {why}"))?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")?;
    let error = Command::new("/usr/lib/systemd/systemd")
        .args(["--system", "--show-status=no", "--unit=node.target"])
        .env_clear()
        .exec();
    Err(format!("starting systemd: {error}").into())
}

/// Copies a tree with owners and modes.
fn lay_over(from: &Path, to: &Path) -> Outcome {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.metadata()?;
        if kind.is_dir() {
            if !target.exists() {
                fs::create_dir(&target)?;
                fs::set_permissions(&target, fs::Permissions::from_mode(kind.mode() & 0o7777))?;
            }
            lay_over(&source, &target)?;
        } else if kind.is_symlink() {
            let _ = fs::remove_file(&target); // what it replaces, if there is anything
            symlink(fs::read_link(&source)?, &target)?;
        } else {
            let _ = fs::remove_file(&target);
            fs::copy(&source, &target)
                .map_err(|why| format!("copying {}: {why}", source.display()))?;
            fs::set_permissions(&target, fs::Permissions::from_mode(kind.mode() & 0o7777))?;
            chown(&target, Some(kind.uid()), Some(kind.gid()))?;
        }
    }
    Ok(())
}
