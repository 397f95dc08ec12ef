//! The same faults of the same kubelet, and when each of the two had told of them.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use procfs::process::all_processes;

use super::npd::{self, PERIOD, THEIRS};
use crate::scene::{KUBELET, SOON, Scene};
use crate::support::api::condition_status;
use crate::support::stats::Sample;
use crate::support::{say, wait_until};

/// node-problem-detector writes once a second what it found; a quick kill that it has not told of by then it has missed.
const FLUSH: Duration = Duration::from_millis(1500);

/// Both watch one node. The faults are spread evenly over the period of node-problem-detector, which is what its
/// latency hangs on.
pub(crate) struct Duel<'a> {
    pub(crate) scene: &'a Scene,
    /// When node-problem-detector was started.
    pub(crate) started: Instant,
}

/// How often a kind of fault was tried, and how soon each of the two told of it, in seconds.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) tries: usize,
    pub(crate) ours: Sample,
    pub(crate) theirs: Sample,
    /// For how long the kubelet's healthz was away.
    pub(crate) away: Sample,
}

struct Try {
    ours: Option<Duration>,
    theirs: Option<Duration>,
    away: Option<Duration>,
}

impl FromIterator<Try> for Tried {
    fn from_iter<I: IntoIterator<Item = Try>>(tries: I) -> Self {
        let tries: Vec<Try> = tries.into_iter().collect();
        let of = |time: fn(&Try) -> Option<Duration>| -> Sample {
            let times = tries.iter().filter_map(time);
            times.map(|time| time.as_secs_f64()).collect()
        };
        Self {
            tries: tries.len(),
            ours: of(|one| one.ours),
            theirs: of(|one| one.theirs),
            away: of(|one| one.away),
        }
    }
}

impl Duel<'_> {
    /// Kills that systemd makes good after its `RestartSec=`.
    pub(crate) fn quick_kills(&self, count: usize) -> Result<Tried> {
        self.spread("killed, started anew", count, || {
            let death = self.scene.kill_kubelet()?;
            let ours = self.ours(death.killed, "False");
            let answers = self.wait_answering()?;
            self.ours(answers, "True").context("our condition")?;
            std::thread::sleep(FLUSH); // that nothing is told shows in nothing but time
            let theirs = self.theirs(death.killed, "True", Duration::ZERO);
            if let Some(noticed) = theirs {
                // It may be back before ours is, whose healthy spell grows with each relapse.
                self.theirs(noticed, "False", SOON)
                    .with_context(|| npd::log(self.scene))?;
            }
            Ok(Try {
                ours: ours.map(|at| at - death.killed),
                theirs: theirs.map(|at| at - death.killed),
                away: Some(answers - death.gone),
            })
        })
    }

    /// Kills after which the kubelet stays dead, until both have told of it.
    pub(crate) fn deaths(&self, count: usize) -> Result<Tried> {
        self.scene.keep_dead()?;
        self.spread("killed, stays dead", count, || {
            let death = self.scene.kill_kubelet()?;
            let told = self.both(death.killed, SOON);
            let from = Instant::now();
            self.scene.node.sh("systemctl start kubelet")?;
            self.well(from)?;
            Ok(Try {
                ours: told.0.map(|at| at - death.killed),
                theirs: told.1.map(|at| at - death.killed),
                away: None,
            })
        })
    }

    /// SIGSTOP, until both have told of it. `look` is called while both ask a kubelet that does not answer.
    pub(crate) fn hangs(&self, count: usize, mut look: impl FnMut()) -> Result<Tried> {
        let mut is_again = false;
        self.spread("stopped", count, || {
            if std::mem::replace(&mut is_again, true) {
                self.scene.node.forget_the_hour()?; // else only what lasts is told again
            }
            let stopped = self.scene.node.signal_unit(KUBELET, Signal::SIGSTOP)?;
            let ours = self.ours(stopped, "False");
            let told = wait_until("node-problem-detector to see the hang", SOON, || {
                look();
                Ok(self.theirs(stopped, "True", Duration::ZERO))
            });
            let from = self.scene.node.signal_unit(KUBELET, Signal::SIGCONT)?;
            self.well(from)?;
            Ok(Try {
                ours: ours.map(|at| at - stopped),
                theirs: told.ok().map(|at| at - stopped),
                away: None,
            })
        })
    }

    /// Tries `count` times, at moments spread evenly over the period.
    fn spread(
        &self,
        what: &str,
        count: usize,
        mut fault: impl FnMut() -> Result<Try>,
    ) -> Result<Tried> {
        let step = PERIOD / u32::try_from(count.max(1))?;
        let mut left: Vec<Duration> = (0..u32::try_from(count)?)
            .map(|at| step * at + step / 2)
            .collect();
        let mut tries = Vec::with_capacity(count);
        while !left.is_empty() {
            // The next moment to come of those left.
            let now = self.started.elapsed().as_secs_f64() % PERIOD.as_secs_f64();
            let ahead = |moment: &Duration| {
                let ahead = (moment.as_secs_f64() - now).rem_euclid(PERIOD.as_secs_f64());
                Duration::from_secs_f64(ahead)
            };
            let next = (0..left.len())
                .min_by_key(|at| ahead(&left[*at]))
                .context("there is one")?;
            std::thread::sleep(ahead(&left.swap_remove(next)));
            let one = fault().with_context(|| format!("{what}: try {}", tries.len() + 1))?;
            say(&format!(
                "{what} {}/{count}: told after {:.3?}, by node-problem-detector after {:.1?}",
                tries.len() + 1,
                one.ours,
                one.theirs
            ));
            tries.push(one);
        }
        Ok(tries.into_iter().collect())
    }

    fn both(&self, from: Instant, within: Duration) -> (Option<Instant>, Option<Instant>) {
        (self.ours(from, "False"), self.theirs(from, "True", within))
    }

    /// Waits until both say that all is well.
    fn well(&self, from: Instant) -> Result<()> {
        self.ours(from, "True").context("our condition")?;
        self.theirs(from, "False", SOON)
            .with_context(|| npd::log(self.scene))?;
        Ok(())
    }

    fn ours(&self, from: Instant, status: &str) -> Option<Instant> {
        let told = self
            .scene
            .wait_until_told(from, |told| told.status == status);
        told.ok().map(|told| told.at)
    }

    fn theirs(&self, from: Instant, status: &str, within: Duration) -> Option<Instant> {
        let seen = self.scene.watch.wait_since(from, within, |event| {
            condition_status(event, THEIRS) == Some(status)
        });
        seen.ok().map(|(at, _)| at)
    }

    /// When the kubelet's healthz takes connections again.
    fn wait_answering(&self) -> Result<Instant> {
        let address = ("127.0.0.1", self.scene.node.ports().healthz);
        wait_until("the kubelet's healthz", SOON, || {
            Ok(TcpStream::connect(address).ok().map(|_| Instant::now()))
        })
    }
}

/// The most memory that a probe of node-problem-detector has had, in MiB, if one runs now; else nothing.
pub(crate) fn probe_memory() -> f64 {
    let probes = all_processes().into_iter().flatten().flatten();
    let peaks = probes.filter_map(|process| {
        let status = process.status().ok()?;
        (status.name == "health-checker").then_some(status.vmhwm?)
    });
    let kib = peaks.max().unwrap_or_default();
    f64::from(u32::try_from(kib).unwrap_or_default()) / 1024.0
}
