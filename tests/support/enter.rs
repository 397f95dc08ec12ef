//! Moves a program into namespaces of its own, so that whatever it starts dies with it, even on `kill -9`.
//!
//! The program runs three times. *Outside* it is what the user started: it sweeps what a killed run left, starts
//! itself again under `unshare`, waits, and removes the run's control groups. *Inside* it is PID 1 of a new PID,
//! mount and network namespace and does its work. For every node it runs once more, as the *boot* stage
//! ([`super::boot`]), which becomes the node's systemd.

use std::convert::Infallible;
use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{boot, cgroups, say};

/// Tells a program which of its stages it is; absent outside.
pub(crate) const STAGE: &str = "NODEVIGIL_LAB";

/// The address of this machine inside the run: kubeadm refuses a loopback address.
pub(crate) const ADDRESS: &str = "10.99.0.1";

/// A folder that every Linux has and that holds neither checkouts nor build results: the run's own tmpfs hides it.
const WORK: &str = "/dev/shm";

/// The run's name, known inside.
static RUN: OnceLock<String> = OnceLock::new();

/// Must be the first call in `main`: returns inside the run's own namespaces, and nowhere else.
/// A call that only lists the tests needs none and returns at once.
pub(crate) fn enter() {
    let outcome = match std::env::var(STAGE) {
        Err(_) if std::env::args().any(|argument| argument == "--list") => return,
        Err(_) => outside(),
        Ok(stage) => match stage.strip_prefix("boot:") {
            Some(spec) => boot::boot(Path::new(spec)).map(|never: Infallible| match never {}),
            None => match inside(&stage) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
        },
    };
    let code = outcome.unwrap_or_else(|error| {
        say(&format!("{error:#}"));
        1
    });
    std::process::exit(code)
}

/// The name of this run: also that of its control groups.
pub(crate) fn run() -> Result<&'static str> {
    let run = RUN
        .get()
        .context("support::enter() must come first in main")?;
    Ok(run)
}

/// The run's work folder: a tmpfs that ends with the run.
pub(crate) fn work() -> &'static Path {
    Path::new(WORK)
}

/// A port that nobody in this run has: they are counted, below those the kernel hands out.
pub(crate) fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A variable that makes a run do something else than its program's usual work.
const ERRAND: &str = "NODEVIGIL_LAB_ERRAND";

/// Starts this program once more, as a run of its own inside this run, on an errand; its output is piped.
pub(crate) fn run_inside(errand: &str) -> Result<Child> {
    Command::new(std::env::current_exe().context("finding this program")?)
        .env_remove(STAGE)
        .env(ERRAND, errand)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a run inside this one")
}

/// The errand that this run was started on.
pub(crate) fn errand() -> Option<String> {
    std::env::var(ERRAND).ok()
}

fn outside() -> Result<i32> {
    if let Err(missing) = possible() {
        if std::env::var_os("CI").is_some() {
            return Err(missing);
        }
        say(&format!("SKIPPED, nothing was run: {missing:#}"));
        return Ok(0);
    }
    private_mounts().context("preparing the run's mounts")?;
    cgroups::sweep()?;
    let run = cgroups::run_name()?;
    let me = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--net",
            "--fork",
        ])
        .args(["--kill-child=KILL", "--propagation", "private", "--"])
        .arg(me)
        .args(std::env::args_os().skip(1))
        .env(STAGE, &run)
        .spawn()
        .context("starting setpriv")?;
    let code = wait(&mut child)?;
    cgroups::remove(&run, Duration::from_secs(10))?;
    Ok(code)
}

/// Whether this machine lets us do what the run needs; the error says what is missing.
fn possible() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "real nodes need root (namespaces, mounts, control groups): run it with sudo"
    );
    for program in [
        "setpriv",
        "unshare",
        "nsenter",
        "ip",
        "containerd",
        "/lib/systemd/systemd",
    ] {
        let found = Command::new("sh")
            .args(["-c", "command -v \"$0\"", program])
            .stdout(Stdio::null())
            .status()
            .context("starting sh")?;
        ensure!(
            found.success(),
            "{program} is missing: run `make tools`, or install util-linux, iproute2, containerd, runc, dbus, cloud-init"
        );
    }
    let tried = Command::new("unshare")
        .args(["--mount", "--pid", "--net", "--cgroup", "--fork", "true"])
        .output()
        .context("starting unshare")?;
    let refusal = String::from_utf8_lossy(&tried.stderr);
    ensure!(
        tried.status.success(),
        "this machine refuses namespaces: {}",
        refusal.trim()
    );
    Ok(())
}

/// Gives the outer process a mount namespace too: so the work folder and a hierarchy that only we mount are hidden
/// from the machine, and the outer process can still remove the run's groups from that hierarchy.
fn private_mounts() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("unshare of the mount namespace")?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .context("making / private")?;
    mount(
        Some("tmpfs"),
        WORK,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=755"),
    )
    .with_context(|| format!("mounting a tmpfs on {WORK}"))?;
    cgroups::ensure_systemd_hierarchies(&work().join("hierarchies"))
}

/// Waits for the inner program; a signal to us ends it.
fn wait(child: &mut Child) -> Result<i32> {
    // Blocked only now, because children inherit the mask. Should a signal come before, it ends us, and the kernel
    // then ends the child.
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block().context("blocking signals")?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC).context("signalfd")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("the child's pid")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open of the inner program")?;
    let mut ready = [
        PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        PollFd::new(pidfd.as_fd(), PollFlags::POLLIN),
    ];
    while let Err(error) = poll(&mut ready, PollTimeout::NONE) {
        if error != nix::errno::Errno::EINTR {
            bail!("poll: {error}");
        }
    }
    let signalled = ready[0].any() == Some(true);
    if signalled {
        child.kill().context("ending the inner program")?;
    }
    let status = child.wait().context("waiting for the inner program")?;
    if signalled {
        let signal = signals.read_signal()?.map_or(2, |info| info.ssi_signo);
        return Ok(128 + i32::try_from(signal)?);
    }
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .context("no exit status")
}

fn inside(run: &str) -> Result<()> {
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        MsFlags::empty(),
        None::<&str>,
    )
    .context("mounting the run's /proc")?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    for folder in ["layers", "nodes", "control-planes"] {
        fs::create_dir_all(work().join(folder)).context("making the work folder")?;
    }
    network()?;
    RUN.set(run.to_owned())
        .map_err(|_| anyhow!("support::enter() was called twice"))
}

/// Loopback, and one address that is not loopback with a default route: kubelet and kubeadm look for both.
fn network() -> Result<()> {
    let lines = format!(
        "link set lo up\nlink add lab0 type veth peer name lab1\naddr add {ADDRESS}/24 dev lab0\n\
         link set lab0 up\nlink set lab1 up\nroute add default dev lab0\n"
    );
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting ip")?;
    ip.stdin
        .take()
        .context("ip's input")?
        .write_all(lines.as_bytes())?;
    let done = ip.wait_with_output().context("waiting for ip")?;
    let refusal = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "setting up the run's network: {}",
        refusal.trim()
    );
    // As on every node; a new network namespace starts without it.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("switching ip_forward on")
}
