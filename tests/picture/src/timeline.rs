//! docs/timeline.svg: what a Node shows from the end of its kubelet until the kubelet is healthy again, to scale.

use anyhow::{Context as _, Result};

use crate::STYLE;
use crate::recording::Recording;

/// Where the lanes of the template begin and end.
const FROM_PX: f64 = 160.0;
const TO_PX: f64 = 840.0;
/// The seconds shown before the kubelet is killed, and after it is healthy again.
const AROUND: f64 = 4.0;

/// The picture. The times are the recording's; those of many tries are from docs/performance.md.
pub fn draw(recording: &Recording, performance: &str) -> Result<String> {
    let (killed, started) = (recording.row("killed")?, recording.row("started")?);
    let seconds = |row: &[String], column: usize| -> Result<f64> {
        let cell = row.get(column).context("a row of docs/demo.cast has too few columns")?;
        cell.parse().with_context(|| format!("docs/demo.cast: {cell} is no number of seconds"))
    };
    let (crashed, unknown) = (seconds(&killed, 3)?, seconds(&killed, 7)?);
    // The demo starts the kubelet once the Node is Unknown.
    let (healthy, ready) = (unknown + seconds(&started, 3)?, unknown + seconds(&started, 7)?);
    let row = performance.lines().find(|line| line.starts_with("| kubelet killed")).unwrap_or_default();
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let [_, _, median, range, tries, _] = cells[..] else {
        anyhow::bail!("docs/performance.md has no row `kubelet killed`")
    };
    let end = healthy.max(ready) + AROUND;
    let x = |at: f64| FROM_PX + (at + AROUND) * (TO_PX - FROM_PX) / (end + AROUND);
    let tick = |at| format!("<text class=\"label soft middle\" x=\"{:.1}\" y=\"256\">{at} s</text>\n", x(at));
    let ticks = (0..).map(|count| f64::from(count) * 10.0).take_while(|at| *at < end);
    Ok(format!(
        include_str!("../templates/timeline.svg"),
        style = STYLE,
        from = FROM_PX,
        killed = x(0.0),
        crashed = x(crashed),
        crashed_secs = crashed,
        crashed_message = recording.message("KubeletCrashed")?,
        unknown = x(unknown),
        unknown_secs = unknown,
        unknown_message = recording.message("NodeStatusUnknown")?,
        ready = x(ready),
        healthy = x(healthy),
        to = TO_PX,
        median = median,
        range = range,
        tries = tries,
        ticks = ticks.map(tick).collect::<Vec<_>>().concat(),
    ))
}
