//! The times on the Node are the cluster's: not those of a node whose clock is wrong, and not those of an outage that is over.
//!
//! The clock of a machine cannot be set for one process. So the proxy has the API server's answers say another time: to
//! the agent it is the same whose clock is wrong.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;

use crate::scene::{OURS, SOON, Told};
use crate::support::api::condition_status;
use crate::support::control_plane::ControlPlane;
use crate::support::lone_agent::LoneAgent;
use crate::support::proxy::Fault;
use crate::support::proxy::fault::SLOW;
use crate::support::rows;
use crate::support::trust;
use crate::trial;

/// Another than those of the rows, and of [`super::late_write`].
const NUMBER: u8 = 201;
/// So far the node's clock is behind the cluster's: longer than any consumer waits.
const BEHIND_SECS: u32 = 2400;
/// How far a published time may lie behind: two seconds that are cut, and the way of the answers on a busy machine.
const WIDTH_SECS: i64 = 4;
const OUTAGE: Duration = Duration::from_secs(20);
/// For the API server's return to be noticed.
const RETURNS: Duration = Duration::from_secs(40);

/// The tests of this topic.
pub(super) fn tests() -> Vec<Trial> {
    vec![
        trial(
            "faults::wrong_clock",
            the_times_on_the_node_are_the_clusters,
        ),
        trial(
            "faults::unanswered",
            a_flip_that_was_written_without_an_answer_keeps_its_time,
        ),
    ]
}

fn the_times_on_the_node_are_the_clusters() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let from = Instant::now();
    let mut agent = LoneAgent::start(&plane, "fault-wrong-clock", NUMBER)?;
    shown(&agent, from, "True", SOON)?;
    agent.proxy.set(Some(Fault::DateAhead(BEHIND_SECS)));
    // The answers to this tell the agent of the other time.
    let killed = agent.kill_kubelet()?;
    shown(&agent, killed, "False", SOON)?;
    let revived = Instant::now();
    agent.revive_kubelet()?;
    shown(&agent, revived, "True", SOON)?;

    let killed = agent.kill_kubelet()?;
    let told = shown(&agent, killed, "False", SOON)?;
    let behind = cluster_secs() - secs(&told)?;
    ensure!(
        (0..=WIDTH_SECS).contains(&behind),
        "{behind} s behind the cluster's clock: {told:?}"
    );
    let revived = Instant::now();
    agent.revive_kubelet()?;
    shown(&agent, revived, "True", SOON)?;

    agent.proxy.set(Some(Fault::Refuse));
    let killed = agent.kill_kubelet()?;
    std::thread::sleep(OUTAGE);
    let returned = cluster_secs();
    agent.proxy.set(Some(Fault::DateAhead(BEHIND_SECS)));
    let told = shown(&agent, killed, "False", RETURNS)?;
    let early = returned - secs(&told)?;
    ensure!(
        early <= WIDTH_SECS,
        "{early} s before the cluster could see it: {told:?}"
    );
    ensure!(
        told.message.contains("; began at "),
        "since when it has really been so: {told:?}"
    );
    agent.ensure_alive()?;
    rows::row(
        "a crash on a node whose clock is 40 minutes behind",
        "a proxy sets the API server's `Date` 2400 s ahead; `kill -9`",
        &format!("{}, its time {behind} s behind the cluster's", told.reason),
        None,
    );
    trust::row(
        5,
        "a crash on a node whose clock is 40 minutes behind the API server's",
        "a transition time of 40 minutes ago: every wait is over at once",
        "the cluster's time; what an outage hid has the time at which it was published, and the message says since when",
    );
    Ok(())
}

/// Each write is carried out, long after the agent has given it up: it tries again, and what was carried out is not moved.
fn a_flip_that_was_written_without_an_answer_keeps_its_time() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let from = Instant::now();
    let mut agent = LoneAgent::start(&plane, "fault-unanswered", NUMBER + 1)?;
    shown(&agent, from, "True", SOON)?;
    agent.proxy.set(Some(Fault::Slow));
    let killed = agent.kill_kubelet()?;
    shown(&agent, killed, "False", 4 * SLOW)?;
    std::thread::sleep(3 * SLOW); // for the tries that follow it
    agent.proxy.set(None);
    std::thread::sleep(SLOW); // what is under way lands
    agent.ensure_alive()?;
    let writes = agent.proxy.traffic();
    let writes = writes
        .requests
        .iter()
        .filter(|asked| asked.kind == "patch status");
    let tries = writes.filter(|asked| asked.at > killed).count();
    ensure!(tries >= 2, "it was tried once: nothing was shown");
    let events = agent.watch.since(killed);
    let told = events.iter().filter_map(Told::read);
    let mut times: Vec<_> = told
        .filter(|told| told.status == "False")
        .map(|told| told.since)
        .collect();
    times.dedup();
    ensure!(times.len() == 1, "it moved: {times:?}\n{}", agent.tail());
    Ok(())
}

/// What the Node shows at last with that status.
fn shown(agent: &LoneAgent, from: Instant, status: &str, within: Duration) -> Result<Told> {
    let is_it = |event: &_| condition_status(event, OURS) == Some(status);
    let seen = agent.watch.wait_since(from, within, is_it);
    let seen = seen.with_context(|| agent.tail())?;
    Told::read(&seen).context("a condition of ours")
}

fn secs(told: &Told) -> Result<i64> {
    let since: Timestamp = told.since.parse().context("lastTransitionTime")?;
    Ok(since.as_second())
}

/// The time that the agent takes for the cluster's.
fn cluster_secs() -> i64 {
    Timestamp::now().as_second() + i64::from(BEHIND_SECS)
}
