//! The units' sandboxes under the real systemd: what the agent needs works inside, of each line that would take something
//! away, `nodevigil doctor` names what is missing, and `reach` shows what the others keep from uid 0.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::Scene;
use crate::support::rows::row;
use crate::support::wait_until;
use crate::trial;

mod reach;

/// Where the line is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// A copy of the agent's unit in which doctor runs instead of the agent.
    Doctor,
    /// The agent's unit; doctor runs outside, as root.
    Agent,
    /// The helper's unit; doctor runs outside, as root.
    Helper,
}

/// What is added, to whom, the check that must notice, and a word of what it says.
struct Taken {
    lines: &'static str,
    to: To,
    check: &'static str,
    says: &'static str,
}

const fn taken(lines: &'static str, to: To, check: &'static str, says: &'static str) -> Taken {
    Taken {
        lines,
        to,
        check,
        says,
    }
}

const TAKEN: &[Taken] = &[
    taken("PrivateDevices=yes", To::Doctor, "kmsg", "PrivateDevices="),
    taken(
        "ProtectKernelLogs=yes",
        To::Agent,
        "kmsg",
        "ProtectKernelLogs=",
    ),
    taken(
        "AmbientCapabilities=\nAmbientCapabilities=CAP_IPC_LOCK",
        To::Agent,
        "kmsg",
        "no CAP_SYSLOG",
    ),
    taken("ProcSubset=pid", To::Doctor, "level", "ProcSubset=pid"),
    taken(
        "InaccessiblePaths=/proc/pressure",
        To::Doctor,
        "psi",
        "the sandbox hides it",
    ),
    taken("ProtectProc=invisible", To::Doctor, "bus", "ProtectProc="),
    taken(
        "SystemCallFilter=~pidfd_open",
        To::Doctor,
        "pidfd",
        "SystemCallFilter=",
    ),
    taken(
        "InaccessiblePaths=/run/dbus",
        To::Doctor,
        "bus",
        "systemd cannot be asked",
    ),
    taken(
        "PrivateNetwork=yes",
        To::Doctor,
        "healthz",
        "PrivateNetwork=",
    ),
    taken(
        "RestrictAddressFamilies=\nRestrictAddressFamilies=AF_UNIX",
        To::Doctor,
        "healthz",
        "RestrictAddressFamilies=",
    ),
    taken(
        "RestrictAddressFamilies=\nRestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        To::Doctor,
        "sockets",
        "AF_NETLINK",
    ),
    taken(
        "InaccessiblePaths=/run/nodevigil-helper.sock",
        To::Doctor,
        "helper",
        "nodevigil-helper.sock",
    ),
    taken(
        "InaccessiblePaths=/run/systemd/journal",
        To::Doctor,
        "journal",
        "standard error",
    ),
    taken(
        "InaccessiblePaths=/etc/nodevigil/kubeconfig",
        To::Doctor,
        "identity",
        "kubeconfig",
    ),
    taken(
        "AmbientCapabilities=\nAmbientCapabilities=CAP_SYSLOG\nCapabilityBoundingSet=\nCapabilityBoundingSet=CAP_SYSLOG\nLimitMEMLOCK=64K",
        To::Agent,
        "memory",
        "64M are needed",
    ),
    taken(
        "InaccessiblePaths=/run/containerd",
        To::Helper,
        "runtime",
        "sandbox of nodevigil-helper.service",
    ),
    taken(
        "InaccessiblePaths=-/var/log/journal -/run/log/journal",
        To::Helper,
        "evidence",
        "sandbox of nodevigil-helper.service",
    ),
];

/// What has to work inside as the units are shipped.
const WORKS: &[&str] = &[
    "config",
    "daemon",
    "bus",
    "psi",
    "kmsg",
    "journal",
    "helper",
    "pidfd",
    "healthz",
    "sockets",
    "runtime",
    "evidence",
    "api",
    "identity",
    "node",
    "conditions",
    "events",
    "lease",
    "apply",
];

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("sandbox::taken_away", what_is_taken_away_is_named),
        trial(
            "sandbox::reach",
            reach::who_has_uid_0_comes_to_this_and_no_more,
        ),
        trial(
            "sandbox::plugin",
            reach::the_runner_of_exec_plugins_takes_no_orders,
        ),
    ]
}

fn what_is_taken_away_is_named() -> Result<()> {
    Scene::healthy("sandbox")?.play(|scene| {
        let said = inside(scene, "")?;
        for check in WORKS {
            ensure!(
                state(&said, check) == "ok",
                "{check} does not work inside: {said:#}"
            );
        }
        // Without an own thread, privilege or file to look at, these are the daemon's own word.
        let said = outside(scene)?;
        ensure!(state(&said, "memory") == "ok", "{said:#}");
        let mut wrong = Vec::new();
        for taken in TAKEN {
            let result = try_one(scene, taken);
            wrong.extend(
                result
                    .err()
                    .map(|error| format!("{}: {error:#}", taken.lines)),
            );
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        row(
            "a line of the sandbox that takes something away",
            "17 drop-ins, one at a time, under the real systemd",
            "`doctor` names each",
            None,
        );
        Ok(())
    })
}

fn try_one(scene: &Scene, taken: &Taken) -> Result<()> {
    let said = match taken.to {
        To::Doctor => inside(scene, taken.lines)?,
        To::Agent => with_drop_in(scene, "nodevigil.service", taken.lines)?,
        To::Helper => with_drop_in(scene, "nodevigil-helper.service", taken.lines)?,
    };
    let line =
        line(&said, taken.check).with_context(|| format!("no line {}: {said:#}", taken.check))?;
    let state = line["state"].as_str().unwrap_or_default();
    let text = format!("{} {}", line["text"], line["advice"]);
    ensure!(
        ["warn", "fail"].contains(&state) && text.contains(taken.says),
        "{} is {state}: {text}",
        taken.check
    );
    Ok(())
}

/// What doctor says in the agent's place: its unit with these lines added, as its user.
fn inside(scene: &Scene, lines: &str) -> Result<Value> {
    let shipped = scene
        .node
        .read("/usr/lib/systemd/system/nodevigil.service")?;
    let kept = shipped.lines().filter(|line| {
        let of_a_daemon = [
            "Type=",
            "NotifyAccess=",
            "ExecStart=",
            "Restart",
            "WatchdogSec=",
            "RuntimeDirectory",
            "[Install]",
            "WantedBy=",
            "Also=",
        ];
        !of_a_daemon.iter().any(|word| line.starts_with(word))
    });
    let kept: Vec<&str> = kept.collect();
    let unit = format!(
        "{}\nType=oneshot\nExecStart=/usr/bin/nodevigil doctor --json\nStandardOutput=truncate:/run/doctor.json\n\
         SuccessExitStatus=1\n{lines}\n",
        kept.join("\n")
    );
    scene.node.sh(&format!(
        "cat >/run/systemd/system/doctor.service <<'EOF'\n{unit}EOF\nsystemctl daemon-reload; rm -f /run/doctor.json; \
         systemctl start doctor"
    ))?;
    let said = scene.node.read("/run/doctor.json")?;
    serde_json::from_str(&said).context(said)
}

/// What doctor says to root.
fn outside(scene: &Scene) -> Result<Value> {
    let (_, said) = scene.node.run("nodevigil doctor --json")?;
    serde_json::from_str(&said).context(said)
}

/// The same while a unit has these lines added.
fn with_drop_in(scene: &Scene, unit: &str, lines: &str) -> Result<Value> {
    let folder = format!("/run/systemd/system/{unit}.d");
    scene.node.sh(&format!(
        "mkdir -p {folder}; printf '[Service]\\n%s\\n' '{lines}' >{folder}/99-taken.conf; systemctl daemon-reload; \
         systemctl restart {unit}"
    ))?;
    let settled = || {
        wait_until(
            "the daemon's word after its restart",
            crate::scene::SOON,
            || {
                let file = scene.node.status_json().unwrap_or_default();
                Ok((file["api"]["state"] == "ok"
                    || file["conditions"][0]["published_at"].is_string())
                .then_some(()))
            },
        )
    };
    let said = settled().and_then(|()| outside(scene));
    scene.node.sh(&format!(
        "rm -r {folder}; systemctl daemon-reload; systemctl restart {unit}"
    ))?;
    settled()?;
    said
}

fn line<'a>(said: &'a Value, check: &str) -> Option<&'a Value> {
    let lines = said["checks"].as_array()?;
    // What is wrong first: a check may have several lines.
    let of_it = || lines.iter().filter(|line| line["check"] == check);
    of_it()
        .find(|line| line["state"] != "ok")
        .or_else(|| of_it().next())
}

fn state<'a>(said: &'a Value, check: &str) -> &'a str {
    line(said, check)
        .and_then(|line| line["state"].as_str())
        .unwrap_or_default()
}
