//! How soon the API server's watchers know: the kubelet is killed, the kubelet is stopped.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use nix::sys::signal::Signal;

use crate::report::{Row, Statistic};
use crate::stage::{KUBELET, NODE, Progress, SOON, Stage, reason};
use crate::support::api::condition_status;
use crate::support::process::{ending, signal};
use crate::support::stats::Sample;
use crate::support::{say, wait_until};

/// So long the API server is stopped: longer than the agent waits for an answer, shorter than the kubelet's own Lease is good.
const OUTAGE: Duration = Duration::from_secs(20);

/// A kubelet that was killed.
struct Kill {
    killed: Instant,
    gone: Instant,
    seen: Instant,
    /// The reason that came first, and the one that replaced it, if any.
    first: String,
    refined: Option<(Instant, String)>,
    /// The wall clock at `gone`: the audit log has no other.
    gone_wall: Timestamp,
    /// The bare apply beside it.
    bare: Duration,
}

/// Kills the kubelet `count` times; returns the rows and a sentence on the reasons.
pub(crate) fn kills(stage: &mut Stage, count: usize) -> Result<(Vec<Row>, String)> {
    let progress = Progress::new("kill", count);
    let mut kills = Vec::with_capacity(count);
    for done in 1..=count {
        let kill = kill(stage).with_context(|| format!("kill {done} of {count}"))?;
        let (gone, seen) = (kill.gone - kill.killed, kill.seen - kill.gone);
        let bare = kill.bare;
        let detail = format!("gone after {gone:.1?}, seen {seen:.1?} later; bare apply {bare:.1?}");
        progress.step(done, &detail);
        kills.push(kill);
    }
    Ok((rows(stage, &kills)?, reasons(&kills)))
}

/// The kubelet dies while the API server does not answer, and somebody gathers evidence: what takes memory besides faults.
pub(crate) fn outage_and_bundle(stage: &Stage) -> Result<()> {
    stage.plane.pause_apiserver()?;
    signal(stage.node.kubelet_pid()?, Signal::SIGKILL)?;
    std::thread::sleep(OUTAGE);
    ensure!(
        stage.node.status_json()?["api"]["state"] != "connected",
        "the agent did not notice an outage of {OUTAGE:?}"
    );
    stage.plane.resume_apiserver()?;
    wait_until("the agent's link to the API server", SOON, || {
        Ok((stage.node.status_json()?["api"]["state"] == "connected").then_some(()))
    })?;
    stage
        .node
        .sh("nodevigil bundle --output /tmp/bench.tar && rm /tmp/bench.tar")?;
    say(&format!(
        "an outage of {OUTAGE:?} and an evidence bundle: done"
    ));
    Ok(())
}

fn kill(stage: &mut Stage) -> Result<Kill> {
    stage.pause(100, 600);
    let bare = stage.bare_apply()?;
    stage.pause(100, 600);
    let pid = stage.node.kubelet_pid()?;
    let end = ending(pid)?;
    let killed = signal(pid, Signal::SIGKILL)?;
    let gone = end.wait(SOON)?;
    let gone_wall = Timestamp::now().checked_sub(gone.elapsed())?;
    let (seen, event) = stage.wait(killed, "False")?;
    let (back, _) = stage.wait(seen, "True")?;
    let between = stage
        .watch
        .since(seen)
        .into_iter()
        .filter(|(at, _)| *at < back);
    let first = reason(&event);
    let mut refined = None;
    for (at, event) in between {
        let status = condition_status(&event, KUBELET);
        ensure!(
            status == Some("False"),
            "it flipped to {status:?} in between"
        );
        if refined.is_none() && reason(&event) != first {
            refined = Some((at, reason(&event)));
        }
    }
    Ok(Kill {
        killed,
        gone,
        seen,
        first,
        refined,
        gone_wall,
        bare,
    })
}

/// Ten milliseconds, where a bare apply takes six, as it did where that was promised. In the short form, which runs on any
/// machine and beside other things, both may be slower by the same factor.
fn to_watch_limit(bare: &Sample) -> f64 {
    let slower = bare.percentile(50).filter(|_| bare.n() < 100);
    slower.map_or(10.0, |p50| (10.0 * p50 / 6.0).max(10.0))
}

fn rows(stage: &Stage, kills: &[Kill]) -> Result<Vec<Row>> {
    use Statistic::{P50, P99};
    let unit = "ms";
    let of = |time: fn(&Kill) -> Option<Duration>| -> Sample {
        kills.iter().filter_map(time).map(millis).collect()
    };
    let to_watch = of(|kill| Some(kill.seen - kill.gone));
    let from_kill = of(|kill| Some(kill.seen - kill.killed));
    let bare = of(|kill| Some(kill.bare));
    let (to_api, through_api) = at_the_api(stage, kills)?;
    let promise = "kubelet gone → condition seen by a watch";
    Ok(vec![
        Row::promised(promise, unit, &to_watch, P50, to_watch_limit(&bare)),
        Row::promised(promise, unit, &to_watch, P99, 50.0),
        Row::promised(
            "SIGKILL → condition seen by a watch",
            unit,
            &from_kill,
            P99,
            150.0,
        ),
        Row::told(
            "SIGKILL → gone: the kernel's part",
            unit,
            &of(|kill| Some(kill.gone - kill.killed)),
        ),
        Row::told("bare apply by the bench → seen by the watch", unit, &bare),
        Row::difference(
            "kubelet gone → seen by a watch, less the bare apply",
            unit,
            &to_watch,
            &bare,
        ),
        Row::told(
            "kubelet gone → the agent's apply arrives at the API server",
            unit,
            &to_api,
        ),
        Row::told(
            "the agent's apply at the API server → seen by the watch",
            unit,
            &through_api,
        ),
        Row::told(
            "KubeletGone seen → its cause seen",
            unit,
            &of(|kill| Some(kill.refined.as_ref()?.0 - kill.seen)),
        ),
    ])
}

/// The agent's applies by the audit log: the way from the kubelet's end to the API server, and from there to the watch.
fn at_the_api(stage: &Stage, kills: &[Kill]) -> Result<(Sample, Sample)> {
    let user = format!("nodevigil:{NODE}");
    let requests = stage.plane.audit()?;
    let applies: Vec<Timestamp> = requests
        .into_iter()
        .filter(|request| request.user == user && request.verb == "patch")
        .map(|request| request.at)
        .collect();
    // Left out: a kill whose apply is not in the log (a new one begins at 100 MB), or not there by the clocks.
    let parts = kills.iter().filter_map(|kill| {
        let apply = applies.iter().find(|at| **at >= kill.gone_wall)?;
        let way = Duration::try_from(apply.duration_since(kill.gone_wall)).ok()?;
        let rest = (kill.seen - kill.gone).checked_sub(way)?;
        Some((millis(way), millis(rest)))
    });
    let (ways, rests): (Vec<f64>, Vec<f64>) = parts.unzip();
    Ok((ways.into_iter().collect(), rests.into_iter().collect()))
}

fn reasons(kills: &[Kill]) -> String {
    let first = |reason: &str| kills.iter().filter(|kill| kill.first == reason).count();
    let refined = kills
        .iter()
        .filter(|kill| {
            kill.refined
                .as_ref()
                .is_some_and(|to| to.1 == "KubeletCrashed")
        })
        .count();
    let (crashed, gone) = (first("KubeletCrashed"), first("KubeletGone"));
    format!(
        "First reason of {} kills: KubeletCrashed {crashed}, KubeletGone {gone}, another {}; {refined} were refined to KubeletCrashed.",
        kills.len(),
        kills.len() - crashed - gone,
    )
}

/// Stops the kubelet with SIGSTOP `count` times, each the first of its hour for the agent.
pub(crate) fn hangs(stage: &mut Stage, count: usize) -> Result<Row> {
    let sample = hung(stage, count, "SIGSTOP", |stage| {
        stage.node.forget_the_hour()
    })?;
    let promise = "kubelet hung (SIGSTOP), the first time in an hour → condition seen by a watch";
    Ok(Row::promised(promise, "s", &sample, Statistic::Max, 5.0))
}

/// The same, within the hour of the last one: only what lasts is told again.
pub(crate) fn hangs_again(stage: &mut Stage, count: usize) -> Result<Row> {
    let sample = hung(stage, count, "SIGSTOP again", |_| Ok(()))?;
    let promise = "kubelet hung (SIGSTOP), again within the hour → condition seen by a watch";
    Ok(Row::promised(promise, "s", &sample, Statistic::Max, 25.0))
}

fn hung(
    stage: &mut Stage,
    count: usize,
    what: &'static str,
    before: impl Fn(&Stage) -> Result<()>,
) -> Result<Sample> {
    let progress = Progress::new(what, count);
    let mut times = Vec::with_capacity(count);
    for done in 1..=count {
        before(stage)?;
        let took = hang(stage).with_context(|| format!("SIGSTOP {done} of {count}"))?;
        progress.step(done, &format!("seen {took:.1?} later"));
        times.push(took.as_secs_f64());
    }
    Ok(times.into_iter().collect())
}

fn hang(stage: &mut Stage) -> Result<Duration> {
    stage.pause(500, 2500); // a whole period of the agent's probes
    let pid = stage.node.kubelet_pid()?;
    let stopped = signal(pid, Signal::SIGSTOP)?;
    let seen = stage.wait(stopped, "False");
    let went_on = signal(pid, Signal::SIGCONT)?;
    let (seen, event) = seen?;
    ensure!(
        reason(&event) == "KubeletHung",
        "the reason is {}",
        reason(&event)
    );
    stage.wait(went_on, "True")?;
    Ok(seen - stopped)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
