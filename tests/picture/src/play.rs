//! docs/demo.svg: a terminal that plays the recording again and again, by CSS alone.
//!
//! All lines are there from the beginning. A cover lies over those that have not been printed yet; it goes down, and the lines go up.

use std::fmt::Write as _;

use crate::STYLE;
use crate::recording::{ROWS, Recording};

/// A line's height: anstyle-svg's.
pub const LINE_PX: usize = 18;

/// Lines that came within this time were printed at once.
const AT_ONCE_SECS: f64 = 0.05;
const LONGEST_PAUSE_SECS: f64 = 2.0;
const END_SECS: f64 = 7.0;

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
    let text = render(&recording.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>());
    let (seconds, all) = (seconds(recording), recording.lines.len());
    let (keyframes, cuts) = animate(&steps(recording), seconds);
    format!(
        include_str!("../templates/terminal.svg"),
        style = STYLE,
        keyframes = keyframes,
        up = up(all),
        down = down(all),
        seconds = seconds,
        cuts = cuts,
        text = text,
    )
}

/// Lines as the elements of a picture.
pub fn render(lines: &[&str]) -> String {
    let picture = anstyle_svg::Term::new().render_svg(&lines.join("\n"));
    // What is before it is sizes and colors.
    picture.find("<text").and_then(|from| picture.get(from..picture.rfind("</svg>")?)).unwrap_or_default().to_owned()
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
fn animate(steps: &[Step], seconds: f64) -> (String, String) {
    let percent = |step: &Step| format!("{:.2}%", step.at * 100.0 / seconds);
    let mut keyframes = "@keyframes progress { from{transform:scaleX(0)} }\n".to_owned();
    for (name, place) in [("up", up as fn(usize) -> String), ("down", down)] {
        let frames: Vec<_> = steps.iter().map(|step| format!("{}{{{}}}", percent(step), place(step.lines))).collect();
        let _ = writeln!(keyframes, "@keyframes {name} {{ {} }}", frames.concat());
    }
    let mut cuts = String::new();
    for (index, pair) in steps.windows(2).enumerate().filter(|(_, pair)| pair[1].cut > 1.0) {
        let (from, to) = (percent(&pair[0]), percent(&pair[1]));
        let _ =
            writeln!(keyframes, "@keyframes cut{index} {{ {from}{{visibility:visible}}{to}{{visibility:hidden}} }}");
        let style = format!("animation:cut{index} {seconds:.2}s step-end infinite");
        let _ = writeln!(
            cuts,
            r#"<text class="bar cut" x="819" y="22" style="{style}">{:.0} s of waiting cut</text>"#,
            pair[1].cut
        );
    }
    (keyframes, cuts)
}
