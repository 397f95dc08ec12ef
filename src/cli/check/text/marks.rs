//! The lines that a finding names, with marks below its words.

use std::sync::Arc;

use annotate_snippets::{Annotation, AnnotationKind, Group, Origin, Snippet};
use kubelet_config::{kubelet::location::Location, rules::Finding};
use redact::escape_controls;

use super::{Sources, Style};

/// Room for a line's number and the bar behind it.
const GUTTER: usize = 8;
/// Room for the dots on both sides of a line that is cut.
const ELLIPSES: usize = 12;

/// A mark below a word.
struct Mark {
    place: Location,
    label: String,
    is_primary: bool,
}

/// Adds the finding's lines to the group. Returns the labels that have no room beside their lines.
pub fn draw<'a>(finding: &Finding, sources: &Sources, style: Style, mut group: Group<'a>) -> (Group<'a>, Vec<String>) {
    let mut footnotes = Vec::new();
    for (file, marks) in by_file(finding, sources, style) {
        match snippet(&file, marks, sources, style, &mut footnotes) {
            Ok(snippet) => group = group.element(snippet),
            Err(origin) if file == finding.at.file => group = group.element(origin),
            Err(_) => {} // its place is in the footnotes
        }
    }
    (group, footnotes)
}

/// The finding's place and those of its chain, file by file, the finding's own first. A file with lines that have to be cut comes once for
/// each line: each is cut for its own mark.
fn by_file(finding: &Finding, sources: &Sources, style: Style) -> Vec<(Arc<str>, Vec<Mark>)> {
    let own = Mark { place: finding.at.clone(), label: String::new(), is_primary: true };
    let steps = finding.chain.iter().map(|step| {
        let label = escape_controls(&step.text);
        Mark { place: step.at.clone(), label, is_primary: false }
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
        let is_cut = marks.iter().any(is_long);
        while let Some(line) = marks.first().map(|mark| mark.place.line) {
            let together = marks.extract_if(.., |mark| !is_cut || mark.place.line == line).collect();
            groups.push((Arc::clone(&file), together));
        }
    }
    groups
}

/// The lines of one file with their marks; its name alone where no line may, or can, be shown.
fn snippet(
    file: &Arc<str>,
    marks: Vec<Mark>,
    sources: &Sources,
    style: Style,
    footnotes: &mut Vec<String>,
) -> Result<Snippet<'static, Annotation<'static>>, Origin<'static>> {
    let (marks, others): (Vec<Mark>, Vec<Mark>) =
        marks.into_iter().partition(|mark| sources.line(&mark.place).is_some());
    footnotes.extend(others.iter().filter_map(footnote));
    let lines = || marks.iter().map(|mark| mark.place.line);
    let (first, last) = (lines().min().unwrap_or(0), lines().max().unwrap_or(0));
    let number = |line: u32| usize::try_from(line).unwrap_or(1);
    let Some(text) = sources.lines(file, first, last) else {
        let origin = Origin::path(escape_controls(file));
        return Err(match others.first().map_or(0, |mark| mark.place.line) {
            0 => origin,
            line => origin.line(number(line)),
        });
    };
    let mut window = Window { room: style.columns.saturating_sub(last.to_string().len() + 3), ends: None };
    let mut snippet = Snippet::source(text.clone()).line_start(number(first)).path(escape_controls(file));
    for mark in &marks {
        let line = sources.line(&mark.place).unwrap_or_default();
        let before = text.split('\n').take(number(mark.place.line - first));
        let start = before.map(|line| line.len() + 1).sum();
        let annotation = window.annotation(mark, line, start);
        if !annotation.as_ref().is_some_and(|(_, has_label)| *has_label) {
            footnotes.extend(footnote(mark));
        }
        if let Some((annotation, _)) = annotation {
            snippet = snippet.annotation(annotation);
        }
    }
    Ok(snippet)
}

/// What can be seen of a line that is too long.
struct Window {
    room: usize,
    /// From the first marked column to the last.
    ends: Option<(usize, usize)>,
}

impl Window {
    /// The mark, and whether its label fits beside it. `start` is where its line begins in the source, in bytes. None if no window shows
    /// it together with the marks before it.
    fn annotation(&mut self, mark: &Mark, line: &str, start: usize) -> Option<(Annotation<'static>, bool)> {
        let is_cut = line.chars().count() > self.room;
        let widest = self.room.saturating_sub(ELLIPSES).max(1);
        let (from, mut to) = columns(line, &mark.place);
        if is_cut {
            to = to.min(from + widest);
        }
        let ends = self.ends.map_or((from, to), |(first, last)| (first.min(from), last.max(to)));
        if is_cut && ends.1 - ends.0 > widest {
            return None;
        }
        self.ends = Some(ends);
        let kind = if mark.is_primary { AnnotationKind::Primary } else { AnnotationKind::Context };
        let bytes = |chars: usize| line.chars().take(chars).map(char::len_utf8).sum::<usize>();
        let annotation = kind.span(start + bytes(from)..start + bytes(to));
        let has_room = !is_cut && to + 1 + mark.label.chars().count() <= self.room;
        Some(if has_room && !mark.label.is_empty() {
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
fn columns(line: &str, place: &Location) -> (usize, usize) {
    let length = line.chars().count();
    let blanks = |chars: &mut dyn Iterator<Item = char>| chars.take_while(|c| *c == ' ').count();
    let number = |number: u32| usize::try_from(number).unwrap_or(0);
    let column = number(place.column);
    if column == 0 || column > length {
        let text_end = length - blanks(&mut line.chars().rev());
        return (blanks(&mut line.chars()).min(text_end), text_end);
    }
    let from = column - 1;
    let width = match number(place.width) {
        0 => line.chars().skip(from).take_while(|c| *c != ' ').count(),
        width => width,
    };
    (from, (from + width.max(1)).min(length))
}
