//! Starting a program as a unit of its own, through systemd: with the limits that are asked for here and no more rights
//! than it needs.

use std::{io::PipeWriter, time::Duration};

use zbus::{Fd, Variant};

use crate::clock::Clock;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// Connecting and asking: a hung PID 1 answers nothing.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// `aws eks get-token` is a Python program of 100 MB.
const MEMORY_MAX_BYTES: u64 = 256 * 1024 * 1024;
const TASKS_MAX: u64 = 64;

/// What is to be run.
#[derive(Debug)]
pub struct Run {
    /// What for, in the unit's name.
    pub purpose: &'static str,
    /// The program's path, then its arguments.
    pub arguments: Vec<String>,
    /// `NAME=value`.
    pub environment: Vec<String>,
    /// Where its output goes; its errors go to the journal.
    pub output: PipeWriter,
    /// After so long systemd ends it.
    pub deadline: Duration,
}

/// Starts it; the name of its unit. Blocks, and must not be called on a runtime.
///
/// # Errors
/// A sentence: systemd cannot be asked, or refuses.
pub fn start(run: Run) -> Result<String, String> {
    let unit = format!(
        "nodevigil-{}-{:x}.service",
        run.purpose,
        Clock.now().uptime.as_nanos()
    );
    let asked = || -> Result<_, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let call = call(&unit, run);
        runtime
            .block_on(async { tokio::time::timeout(CALL_TIMEOUT, call).await })
            .map_err(|_| format!("no answer within {} s", CALL_TIMEOUT.as_secs()))?
            .map_err(|e| e.to_string())
    };
    asked().map_err(|e| format!("systemd was asked to run it: {e}"))?;
    Ok(unit)
}

async fn call(unit: &str, run: Run) -> zbus::Result<()> {
    let connection = zbus::connection::Builder::system().build().await?;
    let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
    let body = (unit, "fail", properties(run), none);
    connection
        .call_method(
            Some(SYSTEMD),
            MANAGER_PATH,
            Some(MANAGER),
            "StartTransientUnit",
            &body,
        )
        .await?;
    Ok(())
}

fn properties(run: Run) -> Vec<(&'static str, Variant<'static>)> {
    // systemd would put the environment in for a dollar sign.
    let arguments: Vec<String> = run
        .arguments
        .iter()
        .map(|word| word.replace('$', "$$"))
        .collect();
    let program = run.arguments.into_iter().next().unwrap_or_default();
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    vec![
        (
            "Description",
            Variant::from("Run by nodevigil: exec plugin of a kubeconfig"),
        ),
        ("Type", Variant::from("exec")),
        ("CollectMode", Variant::from("inactive-or-failed")),
        ("Slice", Variant::from("nodevigil.slice")),
        (
            "ExecStart",
            Variant::from(vec![(program, arguments, false)]),
        ),
        ("Environment", Variant::from(run.environment)),
        (
            "StandardOutputFileDescriptor",
            Variant::from(Fd::from(std::os::fd::OwnedFd::from(run.output))),
        ),
        ("StandardError", Variant::from("journal")),
        ("RuntimeMaxUSec", Variant::from(micros(run.deadline))),
        (
            "TimeoutStopUSec",
            Variant::from(micros(Duration::from_secs(1))),
        ),
        ("MemoryMax", Variant::from(MEMORY_MAX_BYTES)),
        ("TasksMax", Variant::from(TASKS_MAX)),
        ("LimitCORE", Variant::from(0_u64)),
        ("CapabilityBoundingSet", Variant::from(0_u64)),
        ("NoNewPrivileges", Variant::from(true)),
        ("ProtectSystem", Variant::from("strict")),
        ("ProtectHome", Variant::from("read-only")),
        ("PrivateDevices", Variant::from(true)),
        ("ProtectControlGroups", Variant::from(true)),
        ("ProtectKernelTunables", Variant::from(true)),
        ("ProtectKernelModules", Variant::from(true)),
        ("RestrictSUIDSGID", Variant::from(true)),
        ("LockPersonality", Variant::from(true)),
        ("KeyringMode", Variant::from("private")),
    ]
}
