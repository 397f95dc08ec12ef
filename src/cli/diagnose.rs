//! `nodevigil diagnose`: runs every monitor once, and checks the access that nodevigil needs. Works without the agent.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::permissions::{self, Permissions};
use super::status::{color, exit_code};
use super::{Output, UNKNOWN, block_on, complain, is_colored, print, settings_in_effect};
use crate::condition::engine::Engine;
use crate::condition::{Condition, ConditionType, Status, Uptime, View};
use crate::host::blocking;
use crate::host::clock::uptime;
use crate::host::kmsg::LogState;
use crate::host::kubelet::KubeletFacts;
use crate::records::store::{self, Kept};
use crate::report::table;
use crate::run::Tasks;
use crate::settings::{self, Settings};
use crate::trouble::{Trouble, Troubles};

/// The time for the monitors and the API server, and the least time for the API server: the command ends within ten seconds even if the
/// disk, the bus and the API server hang.
const TIME: Duration = Duration::from_secs(8);
const API_TIME: Duration = Duration::from_secs(1);

/// Evaluate every condition once, without the agent, and check the access that nodevigil needs
///
/// Publishes nothing, takes at most ten seconds, and needs root.
///
/// Exit code: 0 every condition is healthy, 1 a condition shows a problem, 2 none shows a problem and one is Unknown, or the command is not run as root.
#[derive(Debug, clap::Args)]
pub struct Diagnose {
    /// Print tables, or JSON
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// Access to something that nodevigil uses.
#[derive(Debug, PartialEq, Serialize)]
struct Access {
    name: &'static str,
    works: bool,
    message: String,
}

impl Diagnose {
    pub fn run(self) -> anyhow::Result<u8> {
        if !rustix::process::geteuid().is_root() {
            complain("diagnose needs root: run it with sudo");
            return Ok(UNKNOWN);
        }
        let troubles = Troubles::default();
        let settings = settings_in_effect();
        if let Err(error) = settings::load(Path::new("/"), &[]) {
            troubles.set(Trouble::ConfigRefused, error.to_string());
        }
        let ((conditions, access), records) = block_on("diagnosing, 10 s at most", async {
            let records = blocking::run("listing records", TIME, store::list);
            tokio::join!(observe(&settings, &troubles), records)
        })?;
        let names: Vec<_> = records.unwrap_or_default().into_iter().map(|Kept { name, .. }| name).collect();
        let json = document(&conditions, &access, &names);
        print(&self.output.render(&json, || text(&conditions, &access, &names, is_colored()))?)?;
        Ok(exit_code(conditions.iter().map(|condition| (condition.status, condition.is_problem()))))
    }
}

/// Runs the monitors until each has evaluated its condition, or the time is up.
async fn observe(settings: &Settings, troubles: &Troubles) -> (Vec<Condition>, Vec<Access>) {
    let deadline = Instant::now() + TIME;
    let mut tasks = Tasks::start(settings, troubles);
    let mut engine = Engine::new(Duration::ZERO, settings.downgraded());
    let mut unseen: Vec<_> = ConditionType::all().filter(|kind| !kind.is_optional()).collect();
    while !unseen.is_empty()
        && let Ok(Some((kind, view))) = timeout_at(deadline, tasks.reports.recv()).await
    {
        if matches!(view, View::Seen { .. } | View::Excused(_)) {
            unseen.retain(|unseen| *unseen != kind);
        }
        engine.report(kind, view, uptime());
    }
    let kubelet = tasks.kubelet.borrow().clone().unwrap_or_else(KubeletFacts::usual);
    let identity =
        timeout_at(deadline.max(Instant::now() + API_TIME), permissions::check(&settings.kubernetes, kubelet)).await;
    let identity = identity.unwrap_or_else(|_| Err(anyhow::anyhow!("the API server has not answered in time")));
    (conditions(&mut engine), access(&tasks, troubles, identity))
}

/// The conditions as an agent that has just started would publish them.
fn conditions(engine: &mut Engine) -> Vec<Condition> {
    let evaluated = engine.evaluate(uptime());
    let condition = |kind: ConditionType| {
        let message = format!("no result within {} s", TIME.as_secs());
        let silent = Condition { kind, status: Status::Unknown, reason: "-".into(), message, since: Uptime::ZERO };
        let condition = evaluated.iter().find(|condition| condition.kind == kind).cloned();
        condition.or_else(|| (!kind.is_optional()).then_some(silent))
    };
    ConditionType::all().filter_map(condition).collect()
}

/// Whether nodevigil can use the settings, the kernel log, systemd and the API server.
fn access(tasks: &Tasks, troubles: &Troubles, identity: anyhow::Result<Permissions>) -> Vec<Access> {
    let troubles = troubles.present();
    let usable = |name, trouble, message: String| match troubles.get(&trouble) {
        Some(problem) => Access { name, works: false, message: problem.clone() },
        None => Access { name, works: true, message },
    };
    let kernel_log = match &*tasks.kernel_log.state().borrow() {
        LogState::Readable => Access { name: "kernel log", works: true, message: "/dev/kmsg".into() },
        LogState::Opening => Access { name: "kernel log", works: false, message: "/dev/kmsg is not open yet".into() },
        LogState::Unreadable(error) => Access { name: "kernel log", works: false, message: error.clone() },
    };
    let watched = tasks.watched.borrow();
    let unit = watched.unit.as_ref().map_or_else(
        || {
            let problem = troubles.get(&Trouble::BusLost).cloned();
            let message = problem.unwrap_or_else(|| "systemd has not reported which unit runs the kubelet".into());
            Access { name: "systemd", works: false, message }
        },
        |unit| usable("systemd", Trouble::BusLost, format!("{unit} runs the kubelet")),
    );
    let (works, message) = match identity {
        Ok(Permissions { source, refused }) if refused.is_empty() => (true, format!("{source} may publish")),
        Ok(Permissions { source, refused }) => (false, format!("{source} may not {}", refused.join(", "))),
        Err(error) => (false, redact::sanitize_line(&format!("{error:#}"), 500)),
    };
    let api = Access { name: "API server", works, message };
    vec![usable("settings", Trouble::ConfigRefused, "accepted".into()), kernel_log, unit, api]
}

fn document(conditions: &[Condition], access: &[Access], records: &[String]) -> Value {
    let conditions = conditions.iter().map(|Condition { kind, status, reason, message, .. }| {
        json!({"type": kind.name(), "status": status, "reason": reason, "message": redact::escape_controls(message)})
    });
    json!({"conditions": conditions.collect::<Vec<_>>(), "access": access, "records": records})
}

fn text(conditions: &[Condition], access: &[Access], records: &[String], colored: bool) -> String {
    let row = |condition: &Condition| {
        let Condition { kind, status, reason, message, .. } = condition;
        let cells = [kind.name(), status.name(), reason, &redact::escape_controls(message)].map(str::to_owned);
        (cells, if colored { color(*status, condition.is_problem()) } else { "" })
    };
    let conditions = table::text(["TYPE", "STATUS", "REASON", "MESSAGE"], conditions.iter().map(row));
    let row = |Access { name, works, message }: &Access| {
        let works = if *works { "yes" } else { "no" };
        ([name, works, &redact::escape_controls(message)].map(str::to_owned), "")
    };
    let access = table::text(["USES", "WORKS", "MESSAGE"], access.iter().map(row));
    if records.is_empty() {
        return format!("{conditions}\n{access}");
    }
    let records = table::text(["RECORD"], records.iter().map(|name| ([name.clone()], "")));
    format!("{conditions}\n{access}\n{records}\nShow one with: nodevigil records show NAME\n")
}
