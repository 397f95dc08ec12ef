//! What controllers that delete machines make of a fleet that says what the agent says: the real ones (tests/cluster), on
//! 300 Nodes with our conditions, by the shipped samples, for an hour of their clocks.
//!
//! The numbers go into docs/consumers.md.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use crate::support::rows;
use crate::support::say;
use crate::trial;
use cluster_api::ClusterApi;
use fleet::{Fleet, Keeper, Trouble};
use karpenter::Karpenter;

mod cluster_api;
mod emptied;
mod fleet;
mod karpenter;
mod stepped;

/// `full` for all of it, and for the table; `make fleet` sets it.
const FLEET: &str = "NODEVIGIL_FLEET";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("consumers::karpenter", || {
            hours::<Karpenter>("Karpenter", &KARPENTER)
        }),
        trial("consumers::cluster_api", || {
            hours::<ClusterApi>("Cluster API", &CLUSTER_API)
        }),
        trial("consumers::emptied", emptied::a_pool_that_is_empty_goes),
    ]
}

/// How many machines of how many bad ones are deleted within the hour, and whether the controller's limit held it back.
struct Expected {
    bad: usize,
    deleted: usize,
    is_blocked: bool,
}

/// What happens to one node after the other, and what happens to all of them in one minute.
struct Rows {
    local: [Expected; 3],
    correlated: [Expected; 3],
}

const fn of(bad: usize, deleted: usize, is_blocked: bool) -> Expected {
    Expected {
        bad,
        deleted,
        is_blocked,
    }
}

/// It waits 30 minutes, and does nothing while more than a fifth of the pool (60) matches.
const KARPENTER: Rows = Rows {
    // One each 20 minutes, one each two: those of the first half hour, the thirtieth minute included. Five each two minutes: more
    // than 60 match before the first of them has waited for long enough, so there is never one that is replaced.
    local: [of(3, 2, false), of(30, 16, false), of(150, 0, true)],
    // After 30 minutes all of them. Their successors, bad from the 32nd minute on, would be due in the 62nd.
    correlated: [of(3, 3, false), of(30, 30, false), of(150, 0, true)],
};

/// It waits 20 minutes, and does nothing while more than the sample's 20 % (60) match or have no Node.
const CLUSTER_API: Rows = Rows {
    // Those of the first forty minutes, the fortieth included. Of five each two minutes 50 wait and five join: below the limit.
    local: [of(3, 2, false), of(30, 21, false), of(150, 103, false)],
    // In the 20th minute, and their successors, bad from the 22nd on, in the 42nd.
    correlated: [of(3, 6, false), of(30, 60, false), of(150, 0, true)],
};

fn hours<K: Keeper>(name: &str, expected: &Rows) -> Result<()> {
    let (mut fleet, mut keeper) = Fleet::kept::<K>()?;
    let local = expected.local.iter().map(|row| (false, row));
    let correlated = expected.correlated.iter().map(|row| (true, row));
    let mut wrong = Vec::new();
    let is_full = std::env::var(FLEET).is_ok_and(|form| form == "full");
    for (is_correlated, row) in local.chain(correlated) {
        // What the limit lets pass and what it stops: the others take minutes.
        if !(is_full || is_correlated && row.bad >= 30) {
            continue;
        }
        let trouble = Trouble {
            bad: row.bad,
            is_correlated,
        };
        let hour = fleet.hour(&mut keeper, trouble)?;
        let how = if is_correlated {
            "all at once, and every successor too"
        } else {
            "one after the other over the hour"
        };
        let held = match hour.held_from {
            Some(minute) => format!("from minute {minute} on"),
            None => "never".to_owned(),
        };
        let (bad, deleted) = (row.bad.to_string(), hour.deleted.to_string());
        if is_full {
            rows::line("fleet", &[name, &bad, how, &deleted, &held]);
        }
        say(&format!(
            "ROW | {name} | {bad} of 300 {how} | {deleted} deleted | held back {held}"
        ));
        if (hour.deleted, hour.held_from.is_some()) != (row.deleted, row.is_blocked) {
            wrong.push(format!("{name}, {bad} {how}: {hour:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), keeper.tail());
    Ok(())
}
