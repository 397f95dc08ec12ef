//! Findings for people, as rustc shows its own: the line, a mark below the word, who overrides whom, what to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::{choice::Chosen, source::Sources, wrap::hang};
use crate::{
    kubelet::{place::Place, shown::harmless, snapshot::Snapshot},
    rules::{self, Finding, Severity},
};

/// How to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) colour: bool,
    pub(super) columns: usize,
    /// Whether each rule that could not judge says what it lacked.
    pub(super) verbose: bool,
}

/// Room for a line's number and the bar behind it.
const GUTTER: usize = 8;

/// Room for the dots on both sides of a line that is cut.
const ELLIPSES: usize = 12;

/// A mark below a word.
struct Mark {
    place: Place,
    label: String,
    is_primary: bool,
}

/// Everything that was found.
pub(super) fn report(
    snapshot: &Snapshot,
    sources: &Sources<'_>,
    chosen: &Chosen,
    notes: &[String],
    style: &Style,
) -> String {
    let mut out = String::new();
    for finding in chosen.shown() {
        out.push_str(&one(finding, sources, style));
        out.push_str("\n\n");
    }
    let mut aside = |text: &str| {
        out.push_str(&hang(&harmless(text), style.columns, 0, 2));
        out.push('\n');
    };
    for allowed in &chosen.allowed {
        let finding = &allowed.finding;
        let (id, at, by) = (finding.rule, &finding.at, &allowed.by);
        aside(&format!(
            "allowed: {id} at {at}, by line {}: {}",
            by.line, allowed.reason
        ));
    }
    for (at, why) in &chosen.refused {
        aside(&format!("note: the comment at {at} {why}"));
    }
    for note in notes {
        aside(&format!("note: {note}"));
    }
    if style.verbose {
        for (lacks, rules) in not_checked(chosen) {
            aside(&format!("not checked: {} ({lacks})", rules.join(", ")));
        }
    }
    aside(&summary(snapshot, chosen, style));
    out
}

/// Rules by what they lacked.
fn not_checked(chosen: &Chosen) -> BTreeMap<&str, Vec<&str>> {
    let mut by_lack: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for skipped in &chosen.not_checked {
        by_lack.entry(skipped.lacks).or_default().push(skipped.rule);
    }
    by_lack
}

fn plural(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn summary(snapshot: &Snapshot, chosen: &Chosen, style: &Style) -> String {
    let mut counts = Vec::new();
    for (severity, word) in [
        (Severity::Fatal, "fatal"),
        (Severity::Error, "error"),
        (Severity::Warning, "warning"),
        (Severity::Info, "info"),
    ] {
        let count = chosen.count(severity);
        if count > 0 {
            let plurals = matches!(severity, Severity::Error | Severity::Warning);
            counts.push(if plurals {
                plural(count, word)
            } else {
                format!("{count} {word}")
            });
        }
    }
    let hidden = chosen.findings.len() - chosen.shown().count();
    let unit = snapshot.unit.fragment.as_ref().map_or_else(
        || snapshot.unit.name.clone(),
        |path| path.display().to_string(),
    );
    let mut text = if counts.is_empty() {
        "nothing found".to_owned()
    } else {
        counts.join(", ")
    };
    write!(text, " in {unit}").expect("a String takes everything");
    let files = files(snapshot);
    if files > 0 {
        let _ = write!(text, " and {}", plural(files, "file"));
    }
    if hidden > 0 {
        let _ = write!(text, "; {hidden} not shown (--severity)");
    }
    if !chosen.not_checked.is_empty() {
        let rules: BTreeSet<&str> = chosen.not_checked.iter().map(|s| s.rule).collect();
        let _ = write!(text, "; {} not checked", plural(rules.len(), "rule"));
        if !style.verbose {
            text.push_str(" (--verbose says why)");
        }
    }
    text
}

/// How many files beside the fragment have a say.
fn files(snapshot: &Snapshot) -> usize {
    use crate::kubelet::{config::FileState, systemd::EnvFileState};
    let env_files = snapshot.unit.env_files.iter();
    let config = snapshot.config.files.iter();
    snapshot.unit.dropins.len()
        + env_files.filter(|f| f.state == EnvFileState::Read).count()
        + snapshot.launch.files.len()
        + config.filter(|f| f.state == FileState::Read).count()
}

fn level(severity: Severity) -> (Level<'static>, &'static str, &'static str) {
    match severity {
        Severity::Fatal => (Level::ERROR, "fatal", "1;91"),
        Severity::Error => (Level::ERROR, "error", "1;91"),
        Severity::Warning => (Level::WARNING, "warning", "1;93"),
        Severity::Info => (Level::INFO, "info", "1;94"),
    }
}

/// One finding.
pub(super) fn one(finding: &Finding, sources: &Sources<'_>, style: &Style) -> String {
    let (level, word, ansi) = level(finding.severity);
    let name = rules::all()
        .find(|rule| rule.id == finding.rule)
        .map_or("", |rule| rule.name);
    let tag = format!("{word}[{}]", format!("{} {name}", finding.rule).trim_end());
    let message = hang(
        &harmless(&finding.message),
        style.columns,
        tag.chars().count() + 2,
        2,
    );
    let mut out = if style.colour {
        format!("\x1b[{ansi}m{tag}\x1b[0m\x1b[1m: {message}\x1b[0m\n")
    } else {
        format!("{tag}: {message}\n")
    };
    let mut footnotes = Vec::new();
    let mut group = Group::with_level(level);
    for (file, marks) in by_file(finding, sources, style) {
        match snippet(&file, marks, sources, style, &mut footnotes) {
            Ok(snippet) => group = group.element(snippet),
            Err(origin) if file == finding.at.file => group = group.element(origin),
            // Its place is in the footnotes.
            Err(_) => {}
        }
    }
    if let Some((rule, at)) = &finding.caused_by {
        footnotes.push(format!("follows from {rule} at {at}"));
    }
    let width = style.columns.saturating_sub(12);
    for note in footnotes {
        group = group.element(Level::NOTE.message(hang(&harmless(&note), width, 0, 0)));
    }
    if let Some(fix) = &finding.fix {
        let fix: Vec<_> = fix.lines().map(harmless).collect();
        group = group.element(Level::HELP.message(hang(&fix.join("\n"), width, 0, 0)));
    }
    let renderer = if style.colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    out.push_str(&renderer.term_width(style.columns).render(&[group]));
    out
}

/// The finding's place and its chain's, file by file, the finding's own first. A file with lines that have to be cut
/// comes once a line: each is cut for its own mark.
fn by_file(finding: &Finding, sources: &Sources<'_>, style: &Style) -> Vec<(Arc<str>, Vec<Mark>)> {
    let own = Mark {
        place: finding.at.clone(),
        label: String::new(),
        is_primary: true,
    };
    let steps = finding.chain.iter().map(|step| Mark {
        place: step.at.clone(),
        label: harmless(&step.text),
        is_primary: false,
    });
    let mut files: Vec<(Arc<str>, Vec<Mark>)> = Vec::new();
    for mark in std::iter::once(own).chain(steps) {
        match files.iter_mut().find(|(file, _)| *file == mark.place.file) {
            Some((_, marks)) => match marks.iter_mut().find(|known| known.place == mark.place) {
                Some(known) if known.label.is_empty() => known.label = mark.label,
                _ => marks.push(mark),
            },
            None => files.push((Arc::clone(&mark.place.file), vec![mark])),
        }
    }
    let is_long = |mark: &Mark| {
        let line = sources.line(&mark.place).unwrap_or_default();
        line.chars().count() + GUTTER > style.columns
    };
    let mut groups = Vec::new();
    for (file, mut marks) in files {
        if marks.iter().any(is_long) {
            while let Some(first) = marks.first() {
                let line = first.place.line;
                let same: Vec<Mark> = marks
                    .extract_if(.., |mark| mark.place.line == line)
                    .collect();
                groups.push((Arc::clone(&file), same));
            }
        } else {
            groups.push((file, marks));
        }
    }
    groups
}

/// The lines of one file with their marks; only its name where no line may, or can, be shown. Labels that do not fit
/// become footnotes.
fn snippet(
    file: &Arc<str>,
    marks: Vec<Mark>,
    sources: &Sources<'_>,
    style: &Style,
    footnotes: &mut Vec<String>,
) -> Result<Snippet<'static, annotate_snippets::Annotation<'static>>, Origin<'static>> {
    let shown_name = harmless(file);
    let (marks, others): (Vec<Mark>, Vec<Mark>) = marks
        .into_iter()
        .partition(|mark| sources.line(&mark.place).is_some());
    footnotes.extend(others.iter().filter_map(footnote));
    let lines = || marks.iter().map(|mark| mark.place.line);
    let (first, last) = (lines().min().unwrap_or(0), lines().max().unwrap_or(0));
    let Some(text) = sources.lines_between(file, first, last) else {
        let line = others.first().map_or(0, |mark| mark.place.line);
        let origin = Origin::path(shown_name);
        return Err(if line == 0 {
            origin
        } else {
            origin.line(usize::try_from(line).unwrap_or(0))
        });
    };
    let gutter = last.to_string().len() + 3;
    let room = style.columns.saturating_sub(gutter);
    let mut snippet = Snippet::source(text.clone())
        .line_start(usize::try_from(first).unwrap_or(1))
        .path(shown_name);
    let mut window = Window { room, ends: None };
    for mark in &marks {
        let line = sources.line(&mark.place).unwrap_or_default();
        let start: usize = text
            .split('\n')
            .take(usize::try_from(mark.place.line - first).unwrap_or(0))
            .map(|line| line.len() + 1)
            .sum();
        match window.annotation(mark, &line, start) {
            Some((annotation, is_labelled)) => {
                snippet = snippet.annotation(annotation);
                if !is_labelled {
                    footnotes.extend(footnote(mark));
                }
            }
            None => footnotes.extend(footnote(mark)),
        }
    }
    Ok(snippet)
}

/// What of a line that is too long can be seen.
struct Window {
    room: usize,
    /// From the first marked column to the last.
    ends: Option<(usize, usize)>,
}

impl Window {
    /// The mark, `start` being where its line begins in the source in bytes, and whether its label fits beside it; `None`
    /// if no window shows it and the marks before it.
    fn annotation(
        &mut self,
        mark: &Mark,
        line: &str,
        start: usize,
    ) -> Option<(annotate_snippets::Annotation<'static>, bool)> {
        let is_cut = line.chars().count() > self.room;
        let widest = self.room.saturating_sub(ELLIPSES).max(1);
        let (from, mut to) = columns(line, &mark.place);
        if is_cut {
            to = to.min(from + widest);
        }
        let ends = self
            .ends
            .map_or((from, to), |(l, r)| (l.min(from), r.max(to)));
        if is_cut && ends.1 - ends.0 > widest {
            return None;
        }
        self.ends = Some(ends);
        let kind = if mark.is_primary {
            AnnotationKind::Primary
        } else {
            AnnotationKind::Context
        };
        let bytes = |chars: usize| line.chars().take(chars).map(char::len_utf8).sum::<usize>();
        let annotation = kind.span(start + bytes(from)..start + bytes(to));
        let fits = !is_cut && to + 1 + mark.label.chars().count() <= self.room;
        Some(if fits && !mark.label.is_empty() {
            (annotation.label(mark.label.clone()), true)
        } else {
            (annotation, false)
        })
    }
}

fn footnote(mark: &Mark) -> Option<String> {
    (!mark.label.is_empty()).then(|| format!("{}: {}", mark.place, mark.label))
}

/// From which to which character of the line the mark reaches.
fn columns(line: &str, place: &Place) -> (usize, usize) {
    let chars: Vec<char> = line.chars().collect();
    let text_end = chars.len() - chars.iter().rev().take_while(|c| **c == ' ').count();
    let column = usize::try_from(place.column).unwrap_or(0);
    if column == 0 || column > chars.len() {
        let indent = chars.iter().take_while(|c| **c == ' ').count();
        return (indent.min(text_end), text_end);
    }
    let from = column - 1;
    let width = match usize::try_from(place.width).unwrap_or(0) {
        0 => chars
            .get(from..)
            .unwrap_or_default()
            .iter()
            .take_while(|c| **c != ' ')
            .count(),
        width => width,
    };
    (from, (from + width.max(1)).min(chars.len()))
}

#[cfg(test)]
mod tests;
