//! `vm reasons`: each reason that is bad, provoked in one guest, one after the other, and mended again; then the rows of the table
//! of trust that need a guest.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use nodevigil::health::{Reason, Status, reasons};

use super::lab::Lab;
use super::provoked::{ALL, ANY_RULE, Act, NOT_HERE, Provocation};
use super::support::rows;
use super::support::say;
use super::trust;

/// Plays all, or those of which a reason or what they are begins so.
pub(crate) fn run(only: &[&str]) -> Result<bool> {
    ensure_all_are_there()?;
    let began = Instant::now();
    let mut lab = Lab::boot()?;
    let mut failed = Vec::new();
    let wanted = |names: &[&str]| {
        let begins = |name: &&str| only.iter().any(|only| name.starts_with(only));
        only.is_empty() || names.iter().any(begins)
    };
    for fault in ALL.iter().copied().flatten() {
        if wanted(fault.reasons) {
            failed.extend(tried(&fault.reasons.join(", "), || play(&mut lab, fault)));
        }
    }
    for (name, play) in trust::ALL {
        if wanted(&[name]) {
            failed.extend(tried(name, || play(&mut lab)));
        }
    }
    say(&format!(
        "took {:.1} min; failed: {failed:?}",
        began.elapsed().as_secs_f64() / 60.0
    ));
    Ok(failed.is_empty())
}

/// Its name, if it failed.
fn tried(name: &str, play: impl FnOnce() -> Result<()>) -> Option<String> {
    play().err().map(|error| {
        say(&format!("FAILED {name}: {error:#}"));
        name.to_owned()
    })
}

/// The registry is the list: each reason that is `False` is provoked once, or it is said why not.
fn ensure_all_are_there() -> Result<()> {
    let bad = reasons().filter(|spec| spec.status == Status::False);
    let wanted = bad.map(|spec| spec.name).chain([ANY_RULE]);
    let faults = || ALL.iter().copied().flatten();
    let provoked = || faults().flat_map(|fault| fault.reasons).copied();
    for name in wanted {
        let times = provoked().filter(|reason| *reason == name).count();
        let excused = NOT_HERE.iter().filter(|(reason, _)| *reason == name);
        ensure!(
            times + excused.count() == 1,
            "{name} is to be provoked once, or to have a reason in NOT_HERE; it is provoked {times} times"
        );
    }
    for name in provoked().chain(NOT_HERE.iter().map(|(name, _)| *name)) {
        let is_bad = Reason::parse(name).is_some_and(|reason| reason.status() == Status::False);
        ensure!(
            is_bad || name == ANY_RULE,
            "{name} is no reason that is bad"
        );
    }
    Ok(())
}

fn play(lab: &mut Lab, fault: &Provocation) -> Result<()> {
    lab.be_well().context("before")?;
    let from = Instant::now();
    let said = act(lab, fault.provoke).and_then(|()| {
        fault
            .reasons
            .iter()
            .try_for_each(|reason| said(lab, fault, reason, from))
    });
    let mended = act(lab, fault.mend);
    said?;
    mended?;
    lab.be_well().context("after it was mended")
}

fn act(lab: &mut Lab, act: Act) -> Result<()> {
    match act {
        Act::Script(script) => lab.guest.sh(script).map(drop),
        Act::Host(act) => act(lab),
    }
}

/// The Node says it; the row for the table.
fn said(lab: &mut Lab, fault: &Provocation, name: &str, from: Instant) -> Result<()> {
    let (kind, shown) = match Reason::parse(name) {
        Some(reason) => (reason.condition(), reason.shown()),
        None if name == ANY_RULE => (
            Some(nodevigil::health::ConditionType::KubeletConfigValid),
            Status::False,
        ),
        None => bail!("{name} is no reason"),
    };
    let kind = kind.context("a bad reason has a condition")?.as_str();
    let (told, took) = lab.wait_for(from, kind, |told| {
        told["status"] == shown.as_str() && (name == ANY_RULE || told["reason"] == name)
    })?;
    let reason = told["reason"].as_str().unwrap_or_default();
    say(&format!("{reason}: {}", told["message"]));
    // Rows are told apart by their first cells, and one fault may show in several conditions.
    let what = match fault.reasons {
        [_] => fault.what.to_owned(),
        _ => format!("{}, in {kind}", fault.what),
    };
    rows::row_of("cgroup2", &what, fault.how, reason, took);
    Ok(())
}
