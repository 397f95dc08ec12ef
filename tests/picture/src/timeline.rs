//! docs/timeline.svg: what a Node shows from the end of its kubelet until the kubelet is healthy again, to scale.

use anyhow::{Context as _, Result};

use crate::{STYLE, recording::Recording};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 160.0;
const RIGHT: f64 = 20.0;
/// The seconds shown before the kubelet is killed, and after all is well again.
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
    let x = |at: f64| LEFT + (at + AROUND) * (WIDTH - LEFT - RIGHT) / (end + AROUND);
    let text = |class: &str, at: f64, y: f64, text: &str| {
        format!("<text class=\"label {class}\" x=\"{at:.1}\" y=\"{y}\">{text}</text>\n")
    };
    let lane = |y: f64, name: &str, by: &str, changes: &[(f64, &str)]| {
        let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let bar = |((from, class), to): (&(f64, &str), f64)| {
            format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"26\"/>\n",
                x(*from),
                x(to) - x(*from)
            )
        };
        let names = text("name end", LEFT - 12.0, y + 12.0, name) + &text("soft end", LEFT - 12.0, y + 27.0, by);
        changes.iter().zip(ends).map(bar).collect::<String>() + &names
    };
    let mark = |at: f64| format!("<line class=\"line\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"58\" y2=\"240\"/>\n", x(at));
    let ticks = (0..).map(|count| f64::from(count) * 10.0).take_while(|at| *at < end);
    let body = [
        text("title", 20.0, 30.0, "A kubelet is killed: what its Node shows"),
        text("soft middle", x(0.0), 52.0, "kill -KILL"),
        text("soft middle", x(unknown), 52.0, "systemctl start kubelet"),
        lane(66.0, "kubelet", "the process", &[(-AROUND, "runs"), (0.0, "ended"), (unknown, "runs")]),
        lane(116.0, "KubeletHealthy", "by nodevigil", &[(-AROUND, "True"), (crashed, "False"), (healthy, "True")]),
        text("in", x(crashed) + 10.0, 134.0, &format!("False after {crashed:.2} s: KubeletCrashed")),
        text("soft", x(crashed) + 10.0, 157.0, &recording.message("KubeletCrashed")?),
        lane(
            176.0,
            "Ready",
            "by the control plane",
            &[(-AROUND, "True"), (0.0, "True stale"), (unknown, "Unknown"), (ready, "True")],
        ),
        text("name", x(0.0) + 10.0, 194.0, "still True"),
        text(
            "soft end",
            x(unknown) - 6.0,
            217.0,
            &format!("Unknown after {unknown:.1} s: {}", recording.message("NodeStatusUnknown")?),
        ),
        mark(0.0) + &mark(unknown),
        ticks.map(|at| text("soft middle", x(at), 256.0, &format!("{at} s"))).collect(),
        text(
            "soft",
            20.0,
            286.0,
            &format!(
                "Times of one run of make demo (docs/demo.cast). Of {tries} kills in make bench, the median is {median}, the range {range} (docs/performance.md)."
            ),
        ),
        text(
            "soft",
            20.0,
            304.0,
            "KubeletHealthy is True again after one healthy second here, after 60 seconds by default (healthy_for_secs).",
        ),
    ];
    Ok(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 320" width="{WIDTH}" height="320" role="img" aria-labelledby="title desc">
<title id="title">What a Node shows after its kubelet is killed</title>
<desc id="desc">nodevigil's condition KubeletHealthy is False, with the cause, after {crashed:.2} s. The control plane's condition Ready stays True for {unknown:.1} s, and then is Unknown.</desc>
<style>
{STYLE}</style>
<rect class="window" x="0.5" y="0.5" width="{}" height="319" rx="8"/>
{}</svg>
"#,
        WIDTH - 1.0,
        body.concat()
    ))
}
