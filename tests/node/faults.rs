//! Every failure of the API, provoked by a TLS proxy in front of the real API server, one agent for each, all at once.
//!
//! Each agent sees a healthy kubelet, then its API fails, then its kubelet is killed for good; so there is something to
//! tell that cannot be told. After a while the API is well again. Judged is what that cost the API server, the log and
//! the machine, and how late the Node says so. `FAULT_SECONDS` is how long the failures last (45; 300 gives the numbers
//! of docs/promises.md). They run beside the other tests.

mod clock;
mod episode;
mod late_write;
mod table;
mod under_systemd;

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::support::control_plane::ControlPlane;
use crate::support::proxy::fault::{Fault, RETRY_AFTER};
use crate::support::say;
use episode::{Outcome, Stage};

/// How late the Node may say what happened, after the API is well again.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
/// The same after 401 and 403, which time hardly ever mends.
const TOLD_AFTER_REFUSAL: Duration = Duration::from_mins(2);
const FOR_SECONDS: &str = "FAULT_SECONDS";

/// One failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// How it is provoked, in the words of the table.
    pub(crate) how: &'static str,
    pub(crate) fault: Failure,
    pub(crate) told_within: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The proxy does it.
    Of(Fault),
    /// The wire loses every packet.
    Wire,
}

const fn row(name: &'static str, how: &'static str, fault: Fault) -> Row {
    Row {
        name,
        how,
        fault: Failure::Of(fault),
        told_within: TOLD_WITHIN,
    }
}

const ROWS: &[Row] = &[
    row(
        "refused",
        "nobody listens; open connections are reset",
        Fault::Refuse,
    ),
    row(
        "reset",
        "each connection, open or new, is reset",
        Fault::Reset,
    ),
    row(
        "hang",
        "requests are taken and never answered, the open watch falls silent",
        Fault::Hang,
    ),
    row(
        "half_open",
        "the open connection is never read again, and nobody says so; new ones work all the time",
        Fault::HalfOpen,
    ),
    Row {
        told_within: TOLD_AFTER_REFUSAL,
        ..row("401", "each request is answered 401", Fault::Status(401))
    },
    Row {
        told_within: TOLD_AFTER_REFUSAL,
        ..row("403", "each request is answered 403", Fault::Status(403))
    },
    row("404", "each request is answered 404", Fault::Status(404)),
    row("409", "each request is answered 409", Fault::Status(409)),
    row("422", "each request is answered 422", Fault::Status(422)),
    Row {
        told_within: TOLD_WITHIN.saturating_add(RETRY_AFTER),
        ..row(
            "429",
            "each request is answered 429 with `Retry-After: 20`",
            Fault::TooMany,
        )
    },
    row("500", "each request is answered 500", Fault::Status(500)),
    row("503", "each request is answered 503", Fault::Status(503)),
    row(
        "slow",
        "each request is carried out and answered 8 s late, also when nobody waits any more",
        Fault::Slow,
    ),
    row(
        "wrong_ca",
        "the server's certificate is another authority's",
        Fault::WrongCa,
    ),
    row(
        "expired",
        "the server's certificate has expired",
        Fault::Expired,
    ),
    row(
        "huge",
        "each request is answered 200 with 64 MB",
        Fault::Huge,
    ),
    row(
        "broken_json",
        "each request is answered 200 with JSON that breaks off",
        Fault::BrokenJson,
    ),
    row(
        "not_http",
        "behind the TLS handshake speaks an SSH server",
        Fault::NotHttp,
    ),
    row(
        "handshake",
        "connections are accepted and never read: the TLS handshake hangs",
        Fault::HandshakeHang,
    ),
    Row {
        name: "dropped",
        how: "every packet is lost in both directions, and the wire then heals",
        fault: Failure::Wire,
        told_within: TOLD_WITHIN,
    },
];

/// The tests of this topic; those that `arguments` selects have begun when this returns.
pub(crate) fn tests(arguments: &Arguments) -> Vec<Trial> {
    let mut trials = under_systemd::tests();
    trials.extend(late_write::tests());
    trials.extend(clock::tests());
    let mut begun = Vec::new();
    for row in ROWS {
        let name = format!("faults::{}", row.name);
        let (tell, told) = channel::<Result<Outcome, String>>();
        if is_selected(arguments, &name) {
            begun.push((*row, tell));
        }
        trials.push(Trial::test(name, move || {
            let outcome = told.recv().map_err(|_| "its run ended early")??;
            match outcome.broken(row) {
                broken if broken.is_empty() => Ok(()),
                broken => Err(Failed::from(format!("{broken:#?}\n{outcome:#?}"))),
            }
        }));
    }
    if !begun.is_empty() {
        std::thread::spawn(move || run(begun));
    }
    trials
}

/// As libtest-mimic selects.
pub(crate) fn is_selected(arguments: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| {
        if arguments.exact {
            name == filter
        } else {
            name.contains(filter.as_str())
        }
    };
    !arguments.list
        && arguments.filter.as_ref().is_none_or(matches)
        && !arguments.skip.iter().any(matches)
}

type Begun = (Row, Sender<Result<Outcome, String>>);

/// Runs every episode at once, prints the table, tells the trials.
fn run(begun: Vec<Begun>) {
    let rows: Vec<Row> = begun.iter().map(|(row, _)| *row).collect();
    let outcomes = match all(&rows) {
        Ok(outcomes) => outcomes,
        Err(error) => rows.iter().map(|_| Err(anyhow!("{error:#}"))).collect(),
    };
    say(&table::table(rows.iter().zip(&outcomes)));
    for ((_, tell), outcome) in begun.into_iter().zip(outcomes) {
        let _ = tell.send(outcome.map_err(|error| format!("{error:#}")));
    }
}

fn all(rows: &[Row]) -> Result<Vec<Result<Outcome>>> {
    let lasting = lasting()?;
    let plane = ControlPlane::shared()?;
    // All are well before the first fails: starting takes more of the machine than anything that follows.
    let stages = in_parallel(rows.iter().zip(1..), |(row, number)| {
        Stage::set(&plane, row, number)
    });
    let pairs = rows.iter().zip(stages);
    Ok(in_parallel(pairs, |(row, stage)| stage?.play(row, lasting)))
}

fn in_parallel<T: Send, R: Send>(
    items: impl Iterator<Item = T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|outcome| outcome.unwrap_or_else(|_| bail!("the thread of an episode panicked")))
            .collect()
    })
}

fn lasting() -> Result<Duration> {
    let secs = match std::env::var(FOR_SECONDS) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{FOR_SECONDS}={text}"))?,
        Err(_) => 45,
    };
    Ok(Duration::from_secs(secs))
}
