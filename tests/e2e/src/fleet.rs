//! What a fleet of agents costs the API server and etcd, and what it does when all start at once and when the API server is away, refuses
//! with 429 or has an etcd that hangs; next to node-problem-detector. `make fleet` runs it.

mod measured;
pub mod members;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use nix::sys::signal::Signal;

use self::measured::{Figures, HEALTHY, Meter, NOBODY};
use self::members::{Kind, Members};
use crate::support::control_plane::ControlPlane;
use crate::support::say;

/// How many Nodes the cluster has.
const NODES: u32 = 5000;
/// How long the API server fails.
const FAILS_FOR: Duration = Duration::from_mins(2);
/// How long requests are counted after the agents were started, and once all Nodes are right again after a failure.
/// An agent spreads them over three minutes.
const COUNTED_FOR: Duration = Duration::from_mins(4);
const COUNTED_AFTER: Duration = Duration::from_secs(30);

/// Measures two fleets of that size, each with a control plane of its own and healthy for that long, and prints a table; writes it into the
/// document, if one is given. The second starts once the first has done so.
pub fn run(size: u32, healthy: Duration, document: Option<&Path>) -> Result<ExitCode> {
    let (started, has_started) = mpsc::channel();
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(move || {
            has_started.recv()?;
            measure(Kind::NodeProblemDetector, size, healthy, || Ok(()))
        });
        (measure(Kind::Nodevigil, size, healthy, move || Ok(started.send(())?)), theirs.join())
    });
    let (ours, theirs) = (ours?, theirs.map_err(|_| anyhow!("a panic"))??);
    let table = measured::table(&ours, &theirs, (size, NODES), healthy)?;
    say(&table);
    if let Some(document) = document {
        measured::write_into(document, &table)?;
    }
    let herds: Vec<_> =
        ours.iter().filter(|figures| figures.peak * 10 > size as usize).map(|figures| figures.name).collect();
    ensure!(herds.is_empty(), "more than a tenth of the agents sent a request in one second: {herds:?}");
    Ok(ExitCode::SUCCESS)
}

fn measure(kind: Kind, size: u32, healthy: Duration, has_started: impl FnOnce() -> Result<()>) -> Result<Vec<Figures>> {
    let plane = Arc::new(ControlPlane::start_in(kind.name())?);
    // They would make every Node without a kubelet NotReady.
    plane.stop_controllers();
    members::create_nodes(&plane, NODES, size)?;
    let (members, mut meter) = (Members::boot(&plane, kind, size)?, Meter::new(&plane, kind));
    let idle = |time| {
        sleep(time);
        Ok(None)
    };
    meter.during(NOBODY, || idle(Duration::from_secs(30)))?;
    meter.during("all start at once", || {
        members.systemctl("start")?;
        members.wait_until_shown(|_| false)?;
        idle(COUNTED_FOR)
    })?;
    has_started()?;
    meter.during("all are restarted at once", || {
        members.systemctl("restart")?;
        idle(COUNTED_FOR)
    })?;
    meter.during(HEALTHY, || idle(healthy))?;
    for (name, failure) in FAILURES.into_iter().take(kind.failures()) {
        meter.during(name, || {
            failure(&plane, &members)?;
            let from = Instant::now();
            members.wait_until_shown(members::is_killed)?;
            let recovered = from.elapsed();
            members.start_killed()?;
            members.wait_until_shown(|_| false)?;
            sleep(COUNTED_AFTER);
            Ok(Some(recovered))
        })?;
    }
    // Their watches end, and the audit log gets its last lines.
    members.systemctl("stop")?;
    sleep(Duration::from_secs(10));
    meter.figures()
}

type Failure = fn(&ControlPlane, &Members) -> Result<()>;

/// What fails for two minutes, during which a twentieth of the agents lose their kubelet.
const FAILURES: [(&str, Failure); 3] = [
    ("the API server is away for two minutes", is_away),
    ("it answers 429 for two minutes", answers_429),
    ("etcd hangs for two minutes", hangs),
];

fn is_away(plane: &ControlPlane, members: &Members) -> Result<()> {
    plane.stop_apiserver();
    members.kill_some()?;
    sleep(FAILS_FOR);
    plane.start_apiserver()
}

fn answers_429(plane: &ControlPlane, members: &Members) -> Result<()> {
    members::refuse_all(plane)?;
    members.kill_some()?;
    sleep(FAILS_FOR);
    members::refuse_none(plane)
}

/// It answers during one of five seconds.
fn hangs(plane: &ControlPlane, members: &Members) -> Result<()> {
    let from = Instant::now();
    for pause in 0.. {
        plane.signal_etcd(Signal::SIGSTOP)?;
        if pause == 0 {
            members.kill_some()?;
        }
        sleep(Duration::from_secs(4));
        plane.signal_etcd(Signal::SIGCONT)?;
        if from.elapsed() > FAILS_FOR {
            break;
        }
        sleep(Duration::from_secs(1));
    }
    Ok(())
}
