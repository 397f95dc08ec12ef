//! Judges a node that is well: each `False` that its Node showed, how old the kubelet's Lease then was, and whether the kubelet lived.
//!
//! By the API server's own record: two watches, of the Node and of its Lease, open from before the node boots. The Lease's time and
//! the API server's clock are those of one machine.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use libtest_mimic::Trial;
use nodevigil::health::ConditionType;
use serde_json::{Value, json};

use crate::scene::LEASES;
use crate::support::api::condition;
use crate::support::cgroups;
use crate::support::control_plane::ControlPlane;
use crate::support::watch::{Arrival, NodeWatch};

/// A kubelet whose Lease is younger than this has reached the API server: Kubernetes itself waits so long, and longer.
pub(super) const FRESH: Duration = Duration::from_secs(40);
/// How often one looks whether the kubelet's process is there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// So long before a `False` the kubelet may have ended.
const JUST: Duration = Duration::from_secs(2);

/// The tests of the judge itself.
pub(super) fn tests() -> Vec<Trial> {
    vec![Trial::test("well::judge", || {
        the_judge_can_tell().map_err(|error| format!("{error:#}").into())
    })]
}

/// A `False` that the Node showed, or a `True` of the one condition whose `True` is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) at: Instant,
    pub(super) kind: &'static str,
    pub(super) reason: String,
    message: String,
    /// None while there is no Lease yet.
    lease_age: Option<Duration>,
    /// A process that is stopped lives.
    kubelet_lived: bool,
}

impl Bad {
    /// Whether the Lease was old, or the kubelet gone: then a `False` is as it should be.
    pub(super) fn is_excused(&self) -> bool {
        !self.kubelet_lived || self.lease_age.is_some_and(|age| age > FRESH)
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lives = if self.kubelet_lived {
            "lives"
        } else {
            "is gone"
        };
        let (kind, reason, message) = (self.kind, &self.reason, &self.message);
        match self.lease_age {
            Some(age) => write!(
                f,
                "{kind} {reason}: the Lease is {:.0} s old, ",
                age.as_secs_f64()
            ),
            None => write!(f, "{kind} {reason}: no Lease yet, "),
        }?;
        write!(f, "the kubelet {lives}: {message}")
    }
}

/// What is known of a node besides what its Node says.
pub(super) struct Witness {
    leases: NodeWatch,
    pub(super) lives: Lives,
    /// One moment by both clocks.
    moment: (Instant, Timestamp),
}

impl Witness {
    /// From now on; the kubelet's control group is to be `group`.
    pub(super) fn start(plane: &ControlPlane, node: &str, group: String) -> Result<Self> {
        let admin = plane.kubeconfig("admin", &["system:masters"], "127.0.0.1")?;
        let path = format!("{LEASES}?watch=1&fieldSelector=metadata.name%3D{node}");
        Ok(Self {
            leases: NodeWatch::start_at(admin, node, path, |event| event)?,
            lives: Lives::start(group)?,
            moment: (Instant::now(), Timestamp::now()),
        })
    }

    /// Each `False` of ours among those events of the Node.
    pub(super) fn judge(&self, events: &[Arrival]) -> Vec<Bad> {
        let leases = self.renewals();
        let news = bad_news(events).into_iter();
        news.map(|(at, kind, said)| Bad {
            at,
            kind,
            reason: text(said, "reason"),
            message: text(said, "message"),
            lease_age: age(&leases, at),
            kubelet_lived: self.lives.at(at),
        })
        .collect()
    }

    /// For how long of that time the Lease was no longer fresh.
    pub(super) fn stale(&self, from: Instant, until: Instant) -> Duration {
        let renewals = self.renewals().into_iter().map(|(_, renewed)| renewed);
        let mut times: Vec<_> = renewals.filter(|at| (from..until).contains(at)).collect();
        times.insert(0, from);
        times.push(until);
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.map(|gap| gap.saturating_sub(FRESH)).sum()
    }

    /// When a renewal was seen, and when it was made.
    fn renewals(&self) -> Vec<(Instant, Instant)> {
        let (moment, then) = self.moment;
        let renewed = |event: &Value| {
            let time = event.pointer("/object/spec/renewTime")?.as_str()?;
            let ago = then.duration_since(time.parse().ok()?);
            Some(if ago.is_negative() {
                moment + ago.unsigned_abs()
            } else {
                moment.checked_sub(ago.unsigned_abs())?
            })
        };
        let events = self.leases.all().into_iter();
        events
            .filter_map(|(at, event)| Some((at, renewed(&event)?)))
            .collect()
    }
}

/// How old the Lease was, as far as the watch had seen.
fn age(renewals: &[(Instant, Instant)], at: Instant) -> Option<Duration> {
    let seen = renewals.iter().take_while(|(seen, _)| *seen <= at);
    seen.last()
        .map(|(_, renewed)| at.saturating_duration_since(*renewed))
}

fn text(condition: &Value, field: &str) -> String {
    condition[field].as_str().unwrap_or_default().to_owned()
}

/// Each time a condition of ours turns bad, or gives another reason for it.
fn bad_news(events: &[Arrival]) -> Vec<(Instant, &'static str, &Value)> {
    let mut news = Vec::new();
    for kind in ConditionType::ALL {
        // A hint, and the other way round.
        let bad = match kind {
            ConditionType::MemoryExhaustionImminent => "True",
            _ => "False",
        };
        let mut last = None;
        for (at, event) in events {
            let said = condition(event, kind.as_str());
            let now = said.filter(|said| said["status"] == bad);
            if let Some(said) = now
                && last != Some(&said["reason"])
            {
                news.push((*at, kind.as_str(), said));
            }
            last = now.map(|said| &said["reason"]);
        }
    }
    news.sort_by_key(|(at, ..)| *at);
    news
}

/// Looks all the time whether the kubelet's process is there.
pub(super) struct Lives {
    changes: Arc<Mutex<Vec<(Instant, bool)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lives {
    fn start(group: String) -> Result<Self> {
        let (changes, stop) = (
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let (into, until) = (Arc::clone(&changes), Arc::clone(&stop));
        let look = move || {
            let mut last = None;
            while !until.load(Ordering::Relaxed) {
                let lives = cgroups::members(&group).is_ok_and(|pids| !pids.is_empty());
                if last.replace(lives) != Some(lives) {
                    let mut changes = into.lock().unwrap_or_else(PoisonError::into_inner);
                    changes.push((Instant::now(), lives));
                }
                std::thread::sleep(LOOK_EVERY);
            }
        };
        let thread = std::thread::Builder::new()
            .name("lives".to_owned())
            .spawn(look)?;
        Ok(Self {
            changes,
            stop,
            thread: Some(thread),
        })
    }

    /// Whether it was there at the last look.
    pub(super) fn now(&self) -> bool {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.last().is_some_and(|(_, lives)| *lives)
    }

    /// Whether it was there at that moment, and just before.
    fn at(&self, at: Instant) -> bool {
        lived(
            &self.changes.lock().unwrap_or_else(PoisonError::into_inner),
            at,
        )
    }
}

fn lived(changes: &[(Instant, bool)], at: Instant) -> bool {
    let began = changes
        .iter()
        .rposition(|(changed, _)| *changed + JUST <= at);
    let since = changes.iter().skip(began.unwrap_or_default());
    // An end is told within milliseconds, and seen here at the next look.
    let mut states = since.take_while(|(changed, _)| *changed <= at + 2 * LOOK_EVERY);
    states.all(|(_, lives)| *lives)
}

impl Drop for Lives {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Without this a run could show no `False` whatever the Node says.
fn the_judge_can_tell() -> Result<()> {
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let after = |secs: u32| start + second * secs;
    let said = |kind: &str, status: &str, reason: &str| json!({"object": {"status": {"conditions": [{"type": kind, "status": status, "reason": reason}]}}});
    let events = [
        (after(1), said("KubeletHealthy", "True", "KubeletIsHealthy")),
        (after(2), said("KubeletHealthy", "False", "KubeletHung")),
        (after(3), said("KubeletHealthy", "False", "KubeletHung")),
        (after(4), said("KubeletHealthy", "False", "KubeletCrashed")),
        (after(5), said("Ready", "False", "KubeletNotReady")),
        (
            after(6),
            said("MemoryExhaustionImminent", "False", "MemoryIsAmple"),
        ),
        (
            after(7),
            said("MemoryExhaustionImminent", "True", "MemoryRunsOut"),
        ),
    ];
    let news: Vec<_> = bad_news(&events)
        .into_iter()
        .map(|(at, kind, _)| (at, kind))
        .collect();
    anyhow::ensure!(
        news == [
            (after(2), "KubeletHealthy"),
            (after(4), "KubeletHealthy"),
            (after(7), "MemoryExhaustionImminent")
        ],
        "{news:?}"
    );
    let renewals = [(after(10), after(9)), (after(20), after(19))];
    for (at, wanted) in [(5, None), (12, Some(3)), (60, Some(41))] {
        let age = age(&renewals, after(at));
        anyhow::ensure!(age == wanted.map(|secs| second * secs), "at {at}: {age:?}");
    }
    let changes = [(start, true), (after(10), false), (after(12), true)];
    for (at, wanted) in [(5, true), (10, false), (11, false), (13, false), (15, true)] {
        anyhow::ensure!(lived(&changes, after(at)) == wanted, "at {at}");
    }
    let just_before = after(10).checked_sub(LOOK_EVERY);
    anyhow::ensure!(just_before.is_some_and(|at| !lived(&changes, at)));
    let bad = |lease_age: Option<u32>, kubelet_lived| Bad {
        at: start,
        kind: "KubeletHealthy",
        reason: String::new(),
        message: String::new(),
        lease_age: lease_age.map(|secs| second * secs),
        kubelet_lived,
    };
    let excused = [bad(Some(41), true), bad(Some(1), false)];
    let broken = [bad(Some(40), true), bad(None, true)];
    anyhow::ensure!(excused.iter().all(Bad::is_excused) && !broken.iter().any(Bad::is_excused));
    Ok(())
}
