//! Measures on a real node what the agent promises (docs/promises.md).
//!
//! A promise is judged as a percentile of many tries, as the worst of a few where the limit has room for that, or as a
//! rate; never by one reading of a stopwatch.

#![expect(
    clippy::disallowed_methods,
    reason = "the bench stands outside the agent, whose doors these are"
)]

#[path = "bench/check.rs"]
mod check;
#[path = "bench/faults.rs"]
mod faults;
#[path = "bench/idle.rs"]
mod idle;
#[path = "bench/order.rs"]
mod order;
#[path = "bench/report.rs"]
mod report;
#[path = "bench/stage.rs"]
mod stage;
#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use report::{Row, Statistic};
use stage::{RESTART, Stage};
use support::{repository, say, tools};

/// `short` for CI: the same on fewer tries. `soak`: an idle hour. `order`: measures nothing, but sees which functions run.
const FORM: &str = "NODEVIGIL_BENCH";
const SHORT: Plan = Plan {
    form: "short",
    kills: 20,
    hangs: 3,
    idle: Duration::from_mins(2),
};
const FULL: Plan = Plan {
    form: "full",
    kills: 200,
    hangs: 20,
    idle: Duration::from_mins(10),
};

const SOAK: Plan = Plan {
    form: "soak",
    kills: 3,
    hangs: 1,
    idle: Duration::from_hours(1),
};
const ORDER: Plan = Plan {
    form: "order",
    kills: 3,
    hangs: 1,
    idle: Duration::from_mins(2),
};
/// A soak of another length.
const SOAK_SECONDS: &str = "SOAK_SECONDS";

struct Plan {
    form: &'static str,
    kills: usize,
    hangs: usize,
    idle: Duration,
}

fn main() -> ExitCode {
    let measured = if check::is_runner() {
        check::run().map(|()| true)
    } else {
        support::enter::enter();
        measure()
    };
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("\n{error:#}")); // the line of progress may not have ended
            ExitCode::FAILURE
        }
    }
}

/// Whether every promise that could be judged holds.
fn measure() -> Result<bool> {
    let started = Instant::now();
    let plan = plan()?;
    let mut stage = Stage::set()?;
    // First, since the agent begins a new life for each; what is idle later has borne all that follows.
    let hung = faults::hangs(&mut stage, plan.hangs)?;
    let (mut rows, reasons) = faults::kills(&mut stage, plan.kills)?;
    rows.extend([
        hung,
        faults::hangs_again(&mut stage, plan.hangs.div_ceil(10))?,
    ]);
    if plan.form == SOAK.form {
        rows.clear(); // so few faults only warm it up
    }
    faults::outage_and_bundle(&stage)?;
    if plan.form == ORDER.form {
        return order::write(&stage, plan.idle).map(|()| true);
    }
    rows.extend(idle::idle(&stage, plan.idle)?);
    let name = if plan.form == SOAK.form {
        "dist/soak.json"
    } else {
        rows.extend(check::check()?);
        rows.push(size()?);
        "dist/bench.json"
    };
    let file = repository().join(name);
    report::write(&rows, &file)?;
    let broken: Vec<String> = rows.iter().filter_map(Row::broken).collect();
    let verdict = if broken.is_empty() {
        "every promise that was judged holds".to_owned()
    } else {
        format!("BROKEN:\n  {}", broken.join("\n  ")) // last, so that the end of a log names them
    };
    write!(
        std::io::stdout(),
        "\n{}\n{reasons}\n\
         Machine: {}.\n\
         Settings: {} form; the agent as its unit, with healthy_for_secs = 0; systemd restarts the kubelet after {RESTART:?}.\n\
         Took {:.0?}; written to {}; {verdict}\n",
        report::table(&rows),
        report::machine(),
        plan.form,
        started.elapsed(),
        file.display(),
    )?;
    Ok(broken.is_empty())
}

fn plan() -> Result<Plan> {
    let form = std::env::var(FORM).unwrap_or_default();
    let mut plan = match form.as_str() {
        "" => FULL,
        "short" => SHORT,
        "soak" => SOAK,
        "order" => ORDER,
        other => bail!("{FORM}={other}: there are `short`, `soak` and `order`"),
    };
    if let Ok(seconds) = std::env::var(SOAK_SECONDS)
        && plan.form == SOAK.form
    {
        let seconds = seconds
            .parse()
            .with_context(|| format!("{SOAK_SECONDS}={seconds}"))?;
        plan.idle = Duration::from_secs(seconds);
    }
    Ok(plan)
}

fn size() -> Result<Row> {
    let path = tools::agent()?;
    let bytes = path.metadata().context("the agent's size")?.len();
    let megabytes = f64::from(u32::try_from(bytes)?) / 1e6;
    let sample = [megabytes].into_iter().collect();
    Ok(Row::promised("binary", "MB", &sample, Statistic::Only, 8.0))
}
