//! Moves this program into namespaces of its own, so that whatever it starts ends with it, even on SIGKILL.
//!
//! The program runs three times. *Outside* it is what the user started: it removes what a killed run left, starts itself
//! again under unshare(1), waits, and removes the run's control groups. *Inside* it is PID 1 of new PID, mount and
//! network namespaces, and runs the stories. For every node it runs once more ([`super::boot`]) and becomes the node's
//! systemd.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use super::cgroups;

/// Tells the program which of its three runs it is; absent outside.
pub const STAGE: &str = "NODEVIGIL_E2E_STAGE";

/// The address of this machine inside the run, which is what nodes call the API server. kubeadm refuses a loopback address.
pub const ADDRESS: &str = "10.99.0.1";

/// A directory that every Linux has and that holds neither checkouts nor build results: the run's own tmpfs hides it.
const WORK: &str = "/dev/shm";

/// The run's name, known inside.
static RUN: OnceLock<String> = OnceLock::new();

/// Which of its runs the program is.
#[derive(Debug)]
pub enum Stage {
    /// What the user started.
    Outside,
    /// In the namespaces of the run of that name.
    Inside(String),
    /// To become the node that the file describes.
    Boot(PathBuf),
}

impl Stage {
    /// This run's, by the environment.
    pub fn current() -> Self {
        match std::env::var(STAGE) {
            Err(_) => Self::Outside,
            Ok(stage) => match stage.strip_prefix("boot:") {
                Some(spec) => Self::Boot(spec.into()),
                None => Self::Inside(stage),
            },
        }
    }
}

/// The name of this run: also that of its control groups.
pub fn run() -> Result<&'static str> {
    Ok(RUN.get().context("the run has no name outside its namespaces")?)
}

/// The run's work directory: a tmpfs that ends with the run.
pub fn work() -> &'static Path {
    Path::new(WORK)
}

/// This program, for nodes and inner runs: a copy, because cargo may replace the original while the stories run.
pub fn program() -> PathBuf {
    work().join("e2e")
}

/// A port that nothing else in this run uses: they are counted, below those that the kernel hands out.
pub fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Starts this program again in namespaces of its own and waits for it; returns its exit code.
pub fn outside() -> Result<ExitCode> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the stories need root for namespaces, mounts and control groups: run `make stories` as root"
    );
    private_mounts().context("preparing the run's mounts")?;
    cgroups::sweep()?;
    let run = cgroups::run_name()?;
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--net", "--fork"])
        .args(["--kill-child=KILL", "--propagation", "private", "--"])
        // By this link, because the work directory of a run inside a run hides the path.
        .arg(format!("/proc/{}/exe", std::process::id()))
        .args(std::env::args_os().skip(1))
        .env(STAGE, &run)
        .spawn()
        .context("starting setpriv")?;
    let code = wait(&mut child)?;
    cgroups::remove(&run, Duration::from_secs(10))?;
    Ok(ExitCode::from(code))
}

/// Gives the outer process a mount namespace too: so the work directory and a hierarchy that only we mount are hidden from
/// the machine, and the outer process can still remove the run's groups from that hierarchy.
fn private_mounts() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("this machine refuses namespaces: unshare")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("making / private")?;
    mount(Some("tmpfs"), WORK, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .with_context(|| format!("mounting a tmpfs on {WORK}"))?;
    cgroups::ensure_systemd_hierarchies(&work().join("hierarchies"))
}

/// Waits for the inner program; SIGINT, SIGTERM and SIGHUP end it.
fn wait(child: &mut Child) -> Result<u8> {
    // Blocked only now, because children inherit the mask. A signal that comes before ends us, and the kernel then ends
    // the child.
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block().context("blocking signals")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    std::thread::spawn(move || {
        if mask.wait().is_ok() {
            let _ = kill(pid, Signal::SIGKILL); // it may have ended
        }
    });
    let status = child.wait().context("waiting for the inner program")?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).context("no exit status")?;
    Ok(u8::try_from(code)?)
}

/// Makes these namespaces a run: its /proc, its work directory and its network.
pub fn inside(run: &str) -> Result<()> {
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>).context("mounting the run's /proc")?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    for directory in ["layers", "nodes"] {
        fs::create_dir_all(work().join(directory)).context("making the work directory")?;
    }
    fs::copy("/proc/self/exe", program()).context("copying this program")?;
    network()?;
    RUN.set(run.to_owned()).map_err(|_| anyhow!("the run has a name already"))
}

/// Loopback, and one address that is not loopback with a default route: kubelet and kubeadm need both.
fn network() -> Result<()> {
    let lines = format!(
        "link set lo up\nlink add e2e0 type veth peer name e2e1\naddr add {ADDRESS}/24 dev e2e0\n\
         link set e2e0 up\nlink set e2e1 up\nroute add default dev e2e0\n"
    );
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting ip")?;
    ip.stdin.take().context("ip's input")?.write_all(lines.as_bytes())?;
    let done = ip.wait_with_output().context("waiting for ip")?;
    let refusal = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "setting up the run's network: {}", refusal.trim());
    // As on every node; a new network namespace starts without it.
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("switching ip_forward on")
}
