//! `nodevigil diagnose`: what every monitor sees at present and what nodevigil can use on this host, without the agent.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::{
    BAD, COULD_NOT_TELL, GOOD, Output, block_on, complain, is_colored, print, settings_in_effect, status::color,
};
use crate::{
    condition::{ConditionType, Status, View, engine::Engine},
    host::{
        clock::uptime,
        kmsg::LogState,
        kubelet::KubeletFacts,
        trouble::{Trouble, Troubles},
    },
    publish::{self, Identity},
    report::table,
    run::Tasks,
    settings::{self, Settings},
};

/// How long the monitors and the API server may take, and the API server at least. So it ends within ten seconds, even if disk, bus and
/// API server hang.
const TIME: Duration = Duration::from_secs(8);
const API_TIME: Duration = Duration::from_secs(1);

/// Look at this node once, without the agent: every condition, and which of the things that nodevigil needs it can use
///
/// Nothing is published. It takes at most ten seconds.
///
/// Exit code: 0 every condition is healthy, 1 one shows a problem, 2 none does and one is Unknown.
#[derive(Debug, clap::Args)]
pub struct Diagnose {
    /// As tables, or in JSON
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Findings {
    conditions: Vec<Found>,
    access: Vec<Access>,
}

/// A condition as the agent would show it, if it had just been started.
#[derive(Debug, PartialEq, Serialize)]
struct Found {
    #[serde(rename = "type")]
    kind: &'static str,
    status: Status,
    reason: String,
    message: String,
    #[serde(skip)]
    is_problem: bool,
}

/// Something that nodevigil uses.
#[derive(Debug, PartialEq, Serialize)]
struct Access {
    name: &'static str,
    works: bool,
    message: String,
}

impl Diagnose {
    pub fn run(self) -> anyhow::Result<u8> {
        if !rustix::process::geteuid().is_root() {
            complain("diagnose reads what only root may read: run it with sudo");
            return Ok(COULD_NOT_TELL);
        }
        let troubles = Troubles::default();
        let settings = settings_in_effect();
        if let Err(error) = settings::load(Path::new("/"), &[]) {
            troubles.set(Trouble::ConfigRefused, error.to_string());
        }
        let findings = block_on(look(&settings, &troubles))?;
        match self.output {
            Output::Json => print(&(serde_json::to_string_pretty(&findings)? + "\n"))?,
            Output::Text => print(&text(&findings, is_colored()))?,
        }
        Ok(exit_code(&findings.conditions))
    }
}

/// Runs the monitors until each has seen its condition, or the time is up.
async fn look(settings: &Settings, troubles: &Troubles) -> Findings {
    let deadline = Instant::now() + TIME;
    let mut tasks = Tasks::start(settings, troubles);
    let mut engine = Engine::new(Duration::ZERO, BTreeMap::new());
    let mut unseen: Vec<_> = ConditionType::ALL.iter().filter(|kind| !kind.is_optional()).copied().collect();
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
        timeout_at(deadline.max(Instant::now() + API_TIME), publish::identity(&settings.kubernetes, kubelet)).await;
    let identity = identity.unwrap_or_else(|_| Err(anyhow::anyhow!("the API server has not answered in time")));
    Findings { conditions: conditions(&mut engine), access: access(&tasks, troubles, identity) }
}

fn conditions(engine: &mut Engine) -> Vec<Found> {
    let seen = engine.evaluate(uptime());
    let found = |kind: &ConditionType| {
        let condition = seen.iter().find(|condition| condition.kind == *kind);
        if condition.is_none() && kind.is_optional() {
            return None;
        }
        let Some(condition) = condition else {
            let message = format!("no result within {} s", TIME.as_secs());
            let (status, reason) = (Status::Unknown, "-".to_owned());
            return Some(Found { kind: kind.name(), status, reason, message, is_problem: false });
        };
        let (reason, message) = (condition.reason.clone(), redact::escape_controls(&condition.message));
        let (status, is_problem) = (condition.status, condition.is_problem());
        Some(Found { kind: kind.name(), status, reason, message, is_problem })
    };
    ConditionType::ALL.iter().filter_map(found).collect()
}

/// What works from here.
fn access(tasks: &Tasks, troubles: &Troubles, identity: anyhow::Result<Identity>) -> Vec<Access> {
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
            let message = problem.unwrap_or_else(|| "it has not said which unit runs the kubelet".into());
            Access { name: "systemd", works: false, message }
        },
        |unit| usable("systemd", Trouble::BusLost, format!("{unit} runs the kubelet")),
    );
    let (works, message) = match identity {
        Ok(Identity { source, refused }) if refused.is_empty() => (true, format!("{source} may publish")),
        Ok(Identity { source, refused }) => (false, format!("{source} may not {}", refused.join(", "))),
        Err(error) => (false, redact::sanitize_line(&format!("{error:#}"), 500)),
    };
    let api = Access { name: "API server", works, message };
    vec![usable("settings", Trouble::ConfigRefused, "accepted".into()), kernel_log, unit, api]
}

fn exit_code(conditions: &[Found]) -> u8 {
    if conditions.iter().any(|condition| condition.is_problem) {
        BAD
    } else if conditions.iter().any(|condition| condition.status == Status::Unknown) {
        COULD_NOT_TELL
    } else {
        GOOD
    }
}

fn text(findings: &Findings, colored: bool) -> String {
    let row = |found: &Found| {
        let cells =
            [found.kind.to_owned(), found.status.name().to_owned(), found.reason.clone(), found.message.clone()];
        (cells, if colored { color(found.status, found.is_problem) } else { "" })
    };
    let conditions = table::text(["TYPE", "STATUS", "REASON", "MESSAGE"], findings.conditions.iter().map(row));
    let row = |access: &Access| {
        let works = if access.works { "yes" } else { "no" };
        ([access.name.to_owned(), works.to_owned(), redact::escape_controls(&access.message)], "")
    };
    format!("{conditions}\n{}", table::text(["USES", "WORKS", "MESSAGE"], findings.access.iter().map(row)))
}
