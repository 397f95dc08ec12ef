//! Reads what may suppress problems: the pause file, the Node, the package manager, the uptime of the host.

use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;

use crate::condition::suppression::{Circumstances, Suppressor};
use crate::condition::{Suppression, Uptime};
use crate::facts::ApiFacts;
use crate::host::clock::{Now, ServerTime};
use crate::host::packages::PackageLocks;
use crate::host::pause::{self, Pause};
use crate::trouble::{Trouble, Troubles};

/// A host or Node that is younger than this is still starting.
const JUST_STARTED: Duration = Duration::from_mins(2);

/// What may suppress problems, as it was last read.
pub struct Suppressions {
    max_pause: Duration,
    /// The pause that is in effect, if any.
    pub pause: Option<Pause>,
    package_locks: PackageLocks,
    suppressor: Suppressor,
    /// The reason in the last line of the log.
    logged: Option<String>,
}

impl Suppressions {
    /// Neither a pause nor a maintenance signal lasts longer than `max_pause`.
    pub fn new(max_pause: Duration) -> Self {
        let (package_locks, suppressor) = (PackageLocks::default(), Suppressor::new(max_pause));
        Self { max_pause, pause: None, package_locks, suppressor, logged: None }
    }

    /// Reads whether nodevigil is paused: by the file, which is by the host's clock, or by the annotation, which is by the API server's.
    pub fn read_pause(&mut self, api: &ApiFacts, now: Now, troubles: &Troubles) {
        let annotation = api.node.as_ref().and_then(|node| node.pause.as_deref());
        let annotation = annotation.map_or(Ok(None), |value| pause::by_annotation(value, now.server, self.max_pause));
        troubles.replace(Trouble::PauseRefused, annotation.as_ref().err().cloned());
        let file = pause::read(Path::new(pause::PATH), now.wall, self.max_pause);
        self.pause = file.or_else(|| annotation.ok().flatten());
    }

    /// The suppression that applies, if any. While everything `is_well` there is nothing that a package upgrade could suppress.
    pub async fn decide(&mut self, api: &ApiFacts, is_well: bool, now: Now) -> Option<Suppression> {
        let Now { uptime, server, .. } = now;
        let pause = self.pause.as_ref().map(|Pause { until, by, reason }| {
            let reason = reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            format!("paused by {by} until {until:.0}{reason}")
        });
        let age = api.node.as_ref().map(|node| server.duration_since(node.created));
        let is_new = age.is_some_and(|age| age < SignedDuration::try_from(JUST_STARTED).unwrap_or_default());
        // A time in the future says nothing.
        let signal_age = |since: ServerTime| Duration::try_from(server.duration_since(since)).ok();
        let signals = api.node.iter().flat_map(|node| &node.signals);
        let signals: Vec<_> = signals.map(|(signal, since)| (*signal, since.and_then(signal_age))).collect();
        let circumstances = Circumstances {
            pause,
            signals: &signals,
            package_manager: if is_well { None } else { self.package_locks.holder(uptime).await },
            has_just_started: uptime < Uptime::ZERO + JUST_STARTED || is_new,
        };
        let suppression = self.suppressor.decide(circumstances, uptime);
        let why = suppression.as_ref().and_then(Suppression::why);
        if why != self.logged.as_deref() {
            if let Some(why) = why {
                tracing::info!("problems are suppressed: {why}");
            } else {
                tracing::info!("problems are no longer suppressed");
            }
            self.logged = why.map(str::to_owned);
        }
        suppression
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NodeFacts;

    const HOUR: Duration = Duration::from_hours(1);

    fn api(node: NodeFacts) -> ApiFacts {
        ApiFacts { node: Some(node), ..ApiFacts::default() }
    }

    fn at(uptime: Duration, time: &str) -> Now {
        Now::of(Uptime::ZERO + uptime, time.parse().unwrap())
    }

    #[tokio::test]
    async fn a_young_host_and_a_young_node_have_just_started() {
        let created = ServerTime::of("2026-01-01T00:00:00Z".parse().unwrap());
        let api = api(NodeFacts { created, ..NodeFacts::default() });
        for (uptime, time, has_just_started) in [
            (Duration::from_mins(1), "2026-01-01T01:00:00Z", true),
            (HOUR, "2026-01-01T00:01:00Z", true),
            (HOUR, "2026-01-01T01:00:00Z", false),
        ] {
            let suppression = Suppressions::new(HOUR).decide(&api, true, at(uptime, time)).await;
            assert_eq!(
                matches!(suppression, Some(Suppression::JustStarted)),
                has_just_started,
                "{time}: {suppression:?}"
            );
        }
    }

    #[tokio::test]
    async fn an_annotation_pauses_and_a_time_too_far_away_is_a_trouble() {
        let (now, troubles) = (at(HOUR, "2026-01-01T00:00:00Z"), Troubles::default());
        let annotated = |until: &str| api(NodeFacts { pause: Some(until.to_owned()), ..NodeFacts::default() });
        let mut suppressions = Suppressions::new(HOUR);
        let api = annotated("2026-01-01T00:30:00Z");
        suppressions.read_pause(&api, now, &troubles);
        assert!(troubles.present().is_empty());
        let suppression = suppressions.decide(&api, true, now).await;
        assert!(matches!(suppression, Some(Suppression::Paused { .. })), "{suppression:?}");
        suppressions.read_pause(&annotated("2026-01-01T01:30:00Z"), now, &troubles);
        assert!(suppressions.pause.is_none() && troubles.present().contains_key(&Trouble::PauseRefused));
    }
}
