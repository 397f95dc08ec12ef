//! Runs qemu: a machine of one processor, its disk's speed set while it runs.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::debugger;
use super::support::{enter, process, wait_until};

/// The processor: with others, kernel 6.1 crashes in this emulator.
const PROCESSOR: &str = "Nehalem-v1";

/// What the machine is made of.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// The folder that `image.sh` made.
    pub(crate) image: &'a Path,
    /// The initial file system.
    pub(crate) initial: &'a Path,
    /// Its memory.
    pub(crate) memory_mib: u32,
    /// Whether it has a disk to swap to.
    pub(crate) swap_disk: bool,
    /// A disk that is read only, with programs.
    pub(crate) programs: Option<&'a Path>,
    /// A word for its files.
    pub(crate) label: &'a str,
}

/// A running emulator. It is gone when it is dropped, with all that the guest wrote.
#[derive(Debug)]
pub(crate) struct Emulator {
    child: Child,
    console: PathBuf,
    debugger: PathBuf,
    monitor: BufReader<UnixStream>,
}

impl Emulator {
    /// Switches it on.
    pub(crate) fn start(parts: &Parts) -> Result<Self> {
        let folder = enter::work().join("nodes");
        let file = |kind: &str| folder.join(format!("{}.{kind}", parts.label));
        let (console, socket, errors) = (file("console"), file("monitor"), file("qemu"));
        let debugger = file("debugger");
        let mut child = command(parts, &console, &socket)
            .arg("-chardev")
            .arg(format!(
                "socket,id=debugger,path={},server=on,wait=off",
                debugger.display()
            ))
            .args(["-gdb", "chardev:debugger"])
            // Where what the guest writes lies.
            .env("TMPDIR", &folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors)?)
            .spawn()
            .context("starting nice")?;
        let connected = wait_until("the emulator's monitor", Duration::from_secs(20), || {
            if let Some(status) = child.try_wait()? {
                bail!(
                    "the emulator (Debian package qemu-system-x86) ended ({status}): {}",
                    process::tail(&errors)
                );
            }
            Ok(UnixStream::connect(&socket).ok())
        });
        let monitor = match connected {
            Ok(monitor) => BufReader::new(monitor),
            Err(error) => {
                let _ = child.kill(); // may be gone
                let _ = child.wait();
                return Err(error);
            }
        };
        let mut emulator = Self {
            child,
            console,
            debugger,
            monitor,
        };
        let patience = Some(Duration::from_secs(20));
        emulator.monitor.get_ref().set_read_timeout(patience)?;
        emulator.ask(&json!({"execute": "qmp_capabilities"}))?;
        Ok(emulator)
    }

    /// How many requests a second the disks do, 0 for no limit.
    pub(crate) fn limit_disks(&mut self, per_second: u32, swap: bool) -> Result<()> {
        let names: &[&str] = if swap { &["root", "swap"] } else { &["root"] };
        for device in names {
            let bytes = if per_second == 0 { 0 } else { 125_000_000 };
            self.ask(&json!({"execute": "block_set_io_throttle", "arguments": {
                "device": device, "bps": bytes, "bps_rd": 0, "bps_wr": 0,
                "iops": per_second, "iops_rd": 0, "iops_wr": 0,
            }}))?;
        }
        Ok(())
    }

    /// Writes bytes into its memory at a physical address, and returns what was there.
    pub(crate) fn poke(&mut self, at: u64, bytes: &[u8]) -> Result<Vec<u8>> {
        debugger::poke(&self.debugger, at, bytes)
    }

    /// Presses its reset button. (Otherwise a reboot ends the emulator, and so does a panic.)
    pub(crate) fn reset(&mut self) -> Result<()> {
        self.ask(&json!({"execute": "set-action", "arguments": {"reboot": "reset"}}))?;
        self.ask(&json!({"execute": "system_reset"}))
    }

    /// Fails, with the end of its console, if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the guest ended ({status}): {}", self.console()),
            None => Ok(()),
        }
    }

    /// The end of what the guest wrote to its console.
    pub(crate) fn console(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // A panic's last lines are registers: what our own first process said stands before them.
        let ours = text
            .lines()
            .filter(|line| line.contains("guest init") || line.contains("panic"));
        let ours: Vec<&str> = ours.take(5).collect();
        format!("{}\n{}", ours.join("\n"), process::tail(&self.console))
    }

    fn ask(&mut self, request: &Value) -> Result<()> {
        let line = format!("{request}\n");
        self.monitor.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut line = String::new();
            if self.monitor.read_line(&mut line)? == 0 {
                bail!("the emulator's monitor ended: {}", self.console());
            }
            let answer: Value = serde_json::from_str(&line)?;
            if let Some(error) = answer.get("error") {
                bail!("{request}: {error}");
            }
            // Greetings and events come in between.
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
    }
}

fn command(parts: &Parts, console: &Path, socket: &Path) -> Command {
    let network = format!("user,id=net,net=10.99.0.0/24,host={}", enter::ADDRESS);
    let memory = parts.memory_mib.to_string();
    // What else this machine does must not look like a stall of the guest's: an emulated processor that waits for its
    // turn is late with everything.
    let mut command = Command::new("nice");
    command
        .args(["-n", "-10", "qemu-system-x86_64"])
        .args(["-accel", "tcg", "-cpu", PROCESSOR, "-smp", "1"])
        .args(["-m", &memory, "-nodefaults", "-no-user-config"])
        .args(["-display", "none", "-no-reboot", "-serial"])
        .arg(format!("file:{}", console.display()))
        .arg("-qmp")
        .arg(format!("unix:{},server=on,wait=off", socket.display()))
        .arg("-kernel")
        .arg(parts.image.join("vmlinuz"))
        .arg("-initrd")
        .arg(parts.initial)
        .args(["-append", "console=ttyS0 quiet panic=-1 psi=1 rdinit=/init"])
        // The host is at the address that it has for the nodes of the other tests.
        .args(["-netdev", &network, "-device", "virtio-net-pci,netdev=net"]);
    let own = |disk: &'static str| (disk, parts.image.join(disk));
    let swap = parts.swap_disk.then(|| own("swap"));
    let programs = parts.programs.map(|disk| ("programs", disk.to_owned()));
    for (disk, file) in [own("root")].into_iter().chain(swap).chain(programs) {
        // With snapshot=on all writes go to a file of the emulator's that nobody else sees.
        command.arg("-drive").arg(format!(
            "id={disk},file={},format=raw,if=none,snapshot=on,cache=unsafe",
            file.display()
        ));
        command.args(["-device", &format!("virtio-blk-pci,drive={disk}")]);
    }
    command
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill(); // may be gone
        let _ = self.child.wait();
    }
}
