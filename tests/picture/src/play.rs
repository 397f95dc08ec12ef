//! docs/demo.svg: a terminal that plays the recording again and again, by CSS alone.
//!
//! All lines are there from the beginning. A cover lies over those that have not been printed yet; it goes down, and the lines go up.

use std::fmt::Write as _;

use crate::{
    STYLE,
    recording::{COLUMNS, ROWS, Recording},
};

/// A line's and a character's size, and the margin: anstyle-svg's.
const LINE_PX: usize = 18;
const CHARACTER_PX: f64 = 8.43;
const MARGIN_PX: usize = 10;

/// Lines that came within this time were printed at once.
const AT_ONCE_SECS: f64 = 0.05;
const LONGEST_PAUSE_SECS: f64 = 2.0;
const END_SECS: f64 = 7.0;

const TITLE: &str = "\
<title id=\"title\">make demo: a terminal plays what nodevigil shows on real nodes</title>
<desc id=\"desc\">A kubelet is killed: the Node's condition KubeletHealthy is False, with the cause, within a tenth of a second, and Ready is \
Unknown after about 50 seconds. nodevigil check finds a flag that never reaches the kubelet, and its patch repairs that. A kubelet is \
OOM-killed, and one hangs.</desc>";

/// A moment of the play.
struct Step {
    at: f64,
    lines: usize,
    /// How many seconds of the recording are left out before it.
    cut: f64,
}

/// The length of the play.
pub fn seconds(recording: &Recording) -> f64 {
    steps(recording).last().map_or(0.0, |step| step.at) + END_SECS
}

/// When each line appears: long pauses are cut, and lines that were printed at once stay for as long as it takes to read them.
fn steps(recording: &Recording) -> Vec<Step> {
    let mut steps = vec![Step { at: 0.0, lines: 0, cut: 0.0 }];
    let (mut at, mut before, mut unread) = (0.0, 0.0, 0.0_f64);
    for (index, line) in recording.lines.iter().enumerate() {
        let pause = line.at - before;
        let mut shown = AT_ONCE_SECS;
        if pause > AT_ONCE_SECS {
            shown = pause.min(LONGEST_PAUSE_SECS).max((0.5 + 0.15 * unread).min(5.0));
            unread = 0.0;
        }
        at += shown;
        before = line.at;
        unread += if line.text.is_empty() { 0.0 } else { 1.0 };
        steps.push(Step { at, lines: index + 1, cut: pause - shown });
    }
    steps
}

/// The picture.
pub fn draw(recording: &Recording) -> String {
    let text = recording.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
    let still = anstyle_svg::Term::new().render_svg(&text);
    // What is before it is sizes and colors.
    let text = still.find("<text").and_then(|from| still.get(from..still.rfind("</svg>")?)).unwrap_or_default();
    let (seconds, all) = (seconds(recording), recording.lines.len());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some 800 pixels")]
    let width = (CHARACTER_PX * COLUMNS as f64) as usize + 2 * MARGIN_PX;
    let (keyframes, cuts) = animate(&steps(recording), seconds, width);
    let height = ROWS * LINE_PX + 54;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="title desc">
{TITLE}
<style>
{STYLE}{keyframes}.lines {{ {up}; animation:up {seconds:.2}s step-end infinite; }}
.cover {{ {down}; animation:down {seconds:.2}s step-end infinite; }}
.progress {{ fill:var(--blue); animation:progress {seconds:.2}s linear infinite; }}
@media (prefers-reduced-motion: reduce) {{ .lines, .cover, .cut, .progress {{ animation:none !important; }} }}
</style>
<rect class="window" x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
<path class="header" d="M0.5 34.5V8.5a8 8 0 0 1 8-8H{corner}a8 8 0 0 1 8 8V34.5z"/>
<text class="bar" x="{MARGIN_PX}" y="22">$ make demo</text>
{cuts}<rect class="progress" x="0" y="33" width="{width}" height="2"/>
<svg x="1" y="44" width="{inside}" height="{rows}" viewBox="0 14 {inside} {rows}"><g class="lines">
{text}<rect class="cover" y="14" width="{width}" height="{over_all}"/>
</g></svg>
</svg>
"#,
        up = up(all),
        down = down(all),
        inner_width = width - 1,
        inner_height = height - 1,
        corner = width - 9,
        inside = width - 2,
        rows = ROWS * LINE_PX,
        over_all = (all + ROWS) * LINE_PX,
    )
}

/// Where the lines are once so many have been printed.
fn up(lines: usize) -> String {
    format!("transform:translateY(-{}px)", lines.saturating_sub(ROWS) * LINE_PX)
}

/// Where the cover is then.
fn down(lines: usize) -> String {
    format!("transform:translateY({}px)", lines * LINE_PX)
}

/// The keyframes, and a text for each pause that is cut.
fn animate(steps: &[Step], seconds: f64, width: usize) -> (String, String) {
    let percent = |step: &Step| format!("{:.2}%", step.at * 100.0 / seconds);
    let mut keyframes = "@keyframes progress { from{transform:scaleX(0)} }\n".to_owned();
    for (name, place) in [("up", up as fn(usize) -> String), ("down", down)] {
        let frames: String = steps.iter().map(|step| format!("{}{{{}}}", percent(step), place(step.lines))).collect();
        let _ = writeln!(keyframes, "@keyframes {name} {{ {frames} }}");
    }
    let mut cuts = String::new();
    for (index, pair) in steps.windows(2).enumerate().filter(|(_, pair)| pair[1].cut > 1.0) {
        let (from, to, x) = (percent(&pair[0]), percent(&pair[1]), width - MARGIN_PX);
        let _ =
            writeln!(keyframes, "@keyframes cut{index} {{ {from}{{visibility:visible}}{to}{{visibility:hidden}} }}");
        let style = format!("animation:cut{index} {seconds:.2}s step-end infinite");
        let _ = writeln!(
            cuts,
            r#"<text class="bar cut" x="{x}" y="22" style="{style}">{:.0} s of waiting cut</text>"#,
            pair[1].cut
        );
    }
    (keyframes, cuts)
}
