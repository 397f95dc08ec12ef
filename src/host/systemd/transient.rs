//! A command that systemd runs as a transient unit: outside the agent's sandbox and memory, in a cgroup of its own, which systemd kills as a
//! whole at the end, and at the deadline even if the agent is gone.

use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep, timeout_at};
use zbus::{Fd, Variant};

use super::signal::{MANAGER, MANAGER_PATH, SERVICE, UNIT};
use super::{CALL_TIMEOUT, Systemd, read};

/// A command that prints more is killed.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// What it and its children may use.
const MEMORY_MAX_BYTES: u64 = 256 << 20;
/// A program in Go starts about as many threads as there are CPUs, and crashes if it cannot.
const TASKS_MAX: u64 = 512;
/// A command must not slow down what the other conditions measure.
const WEIGHT: u64 = 10;
/// systemd waits for a killed process for so long, twice, and then gives the unit up.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after the deadline the unit may take to end.
pub const END_WAIT: Duration = Duration::from_secs(6);
/// Between two questions whether the unit has ended, doubled from the first to the last. Its output ends some milliseconds before.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const SIGKILL: i32 = 9;
/// `ExecMainCode` of a process that has exited (`CLD_EXITED` of sigaction(2)).
const EXITED: i32 = 1;
/// systemd logs the start and the end of each run, and exit codes other than 0, up to level warning (4).
const LOG_LEVEL_MAX: i32 = 3;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The name of the unit. There is never a second one of it.
    pub unit: String,
    /// The absolute path of the program, and its arguments.
    pub argv: Vec<String>,
    pub user: String,
    pub time: Duration,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// With this exit code, and what it has printed.
    Exited(i32, String),
    /// By a signal that was not systemd's; systemd's `Result`.
    Killed(String),
    TimedOut,
    PrintedTooMuch,
    /// A process of an earlier run is left, such as one that waits in the kernel (state D).
    StillRuns,
    NotStarted(String),
}

/// Runs a command. Returns some seconds after its deadline at the latest.
pub async fn run(command: &Command) -> Outcome {
    let deadline = Instant::now() + command.time + END_WAIT;
    match timeout_at(deadline, run_to_end(command)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(zbus::Error::MethodError(name, ..))) if name.as_str() == UNIT_EXISTS => Outcome::StillRuns,
        Ok(Err(error)) => Outcome::NotStarted(error.to_string()),
        Err(_) => Outcome::TimedOut,
    }
}

async fn run_to_end(command: &Command) -> zbus::Result<Outcome> {
    let systemd = Systemd::connect(CALL_TIMEOUT).await?;
    let (reader, writer) = io::pipe()?;
    start(&systemd, command, writer).await?;
    let unit = systemd.load(&command.unit).await?;
    let mut printed = Vec::new();
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
    reader.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut printed).await?;
    if printed.len() as u64 > MAX_OUTPUT_BYTES {
        systemd.call(MANAGER_PATH, MANAGER, "StopUnit", &(command.unit.as_str(), "replace")).await?;
        return Ok(Outcome::PrintedTooMuch);
    }
    let mut wait = ASK_AGAIN.0;
    while !["inactive", "failed"].contains(&systemd.text(&unit, UNIT, "ActiveState").await?.as_str()) {
        sleep(wait).await;
        wait = (wait * 2).min(ASK_AGAIN.1);
    }
    let result = systemd.text(&unit, SERVICE, "Result").await?;
    let code: i32 = read(&systemd.property(&unit, SERVICE, "ExecMainCode").await?);
    let status = read(&systemd.property(&unit, SERVICE, "ExecMainStatus").await?);
    Ok(match result.as_str() {
        "timeout" => Outcome::TimedOut,
        _ if code == EXITED => Outcome::Exited(status, String::from_utf8_lossy(&printed).into_owned()),
        _ => Outcome::Killed(result),
    })
}

/// Starts the unit. The reference of `AddRef`, which this connection holds, keeps its properties readable after its end.
async fn start(systemd: &Systemd, command: &Command, stdout: PipeWriter) -> zbus::Result<()> {
    let micros = |time: Duration| Variant::from(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    // systemd expands `$NAME` in arguments (systemd.service(5), "COMMAND LINES").
    let argv: Vec<String> = command.argv.iter().map(|word| word.replace('$', "$$")).collect();
    let program = command.argv.first().cloned().unwrap_or_default();
    let properties = [
        ("Description", Variant::from("A custom check of nodevigil")),
        ("ExecStart", Variant::from(vec![(program, argv, false)])),
        ("User", Variant::from(command.user.as_str())),
        ("StandardOutputFileDescriptor", Variant::from(Fd::from(OwnedFd::from(stdout)))),
        ("StandardError", Variant::from("null")),
        ("RuntimeMaxUSec", micros(command.time)),
        ("TimeoutStopUSec", micros(STOP_TIMEOUT)),
        ("KillMode", Variant::from("control-group")),
        ("KillSignal", Variant::from(SIGKILL)),
        ("MemoryMax", Variant::from(MEMORY_MAX_BYTES)),
        ("TasksMax", Variant::from(TASKS_MAX)),
        // Of the default of 100, which the kubelet has.
        ("CPUWeight", Variant::from(WEIGHT)),
        ("IOWeight", Variant::from(WEIGHT)),
        ("MemorySwapMax", Variant::from(0_u64)),
        ("LimitCORE", Variant::from(0_u64)),
        ("LogLevelMax", Variant::from(LOG_LEVEL_MAX)),
        ("CollectMode", Variant::from("inactive-or-failed")),
        ("AddRef", Variant::from(true)),
    ];
    let auxiliary: [(&str, Vec<(&str, Variant<'_>)>); 0] = [];
    let body = (command.unit.as_str(), "fail", properties.as_slice(), auxiliary.as_slice());
    systemd.call(MANAGER_PATH, MANAGER, "StartTransientUnit", &body).await.map(drop)
}
