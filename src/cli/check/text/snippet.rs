//! The source lines of a finding, with labels below their words.

use std::sync::Arc;

use annotate_snippets::{Annotation, AnnotationKind, Group, Origin, Snippet};
use kubelet_config::kubelet::location::Location;
use kubelet_config::rules::Finding;
use redact::escape_controls;

use super::{Sources, Style};

/// The width of a line's number and the bar after it.
const GUTTER: usize = 8;
/// The width of the dots on both sides of a shortened line.
const ELLIPSES: usize = 12;

/// A part of a line that is underlined, and the text next to it.
struct Label {
    location: Location,
    text: String,
    is_primary: bool,
}

/// Adds the finding's lines to the group. Returns the labels whose text does not fit next to their lines.
pub fn draw<'a>(finding: &Finding, sources: &Sources, style: Style, mut group: Group<'a>) -> (Group<'a>, Vec<String>) {
    let mut footnotes = Vec::new();
    for (file, labels) in by_file(finding, sources, style) {
        match snippet(&file, labels, sources, style, &mut footnotes) {
            Ok(snippet) => group = group.element(snippet),
            Err(origin) if file == finding.at.file => group = group.element(origin),
            Err(_) => {} // its location is in the footnotes
        }
    }
    (group, footnotes)
}

/// The finding's location and those of its chain by file, the finding's own file first. A file with lines that have to be shortened comes
/// once for each line, because each line is shortened around its own label.
fn by_file(finding: &Finding, sources: &Sources, style: Style) -> Vec<(Arc<str>, Vec<Label>)> {
    let own = Label { location: finding.at.clone(), text: String::new(), is_primary: true };
    let steps = finding.chain.iter().map(|step| {
        let text = escape_controls(&step.text);
        Label { location: step.at.clone(), text, is_primary: false }
    });
    let mut files: Vec<(Arc<str>, Vec<Label>)> = Vec::new();
    for label in std::iter::once(own).chain(steps) {
        match files.iter_mut().find(|(file, _)| *file == label.location.file) {
            Some((_, labels)) => match labels.iter_mut().find(|known| known.location == label.location) {
                Some(known) if known.text.is_empty() => known.text = label.text,
                _ => labels.push(label),
            },
            None => files.push((Arc::clone(&label.location.file), vec![label])),
        }
    }
    let is_long = |label: &Label| {
        let line = sources.line(&label.location).unwrap_or_default();
        line.chars().count() + GUTTER > style.columns
    };
    let mut groups = Vec::new();
    for (file, mut labels) in files {
        let is_cut = labels.iter().any(is_long);
        while let Some(line) = labels.first().map(|label| label.location.line) {
            let together = labels.extract_if(.., |label| !is_cut || label.location.line == line).collect();
            groups.push((Arc::clone(&file), together));
        }
    }
    groups
}

/// The lines of one file with their labels; only its name if no line may or can be shown.
fn snippet(
    file: &Arc<str>,
    labels: Vec<Label>,
    sources: &Sources,
    style: Style,
    footnotes: &mut Vec<String>,
) -> Result<Snippet<'static, Annotation<'static>>, Origin<'static>> {
    let (labels, others): (Vec<Label>, Vec<Label>) =
        labels.into_iter().partition(|label| sources.line(&label.location).is_some());
    footnotes.extend(others.iter().filter_map(footnote));
    let lines = || labels.iter().map(|label| label.location.line);
    let (first, last) = (lines().min().unwrap_or(0), lines().max().unwrap_or(0));
    let number = |line: u32| usize::try_from(line).unwrap_or(1);
    let Some(text) = sources.lines(file, first, last) else {
        let origin = Origin::path(escape_controls(file));
        return Err(match others.first().map_or(0, |label| label.location.line) {
            0 => origin,
            line => origin.line(number(line)),
        });
    };
    let mut window = Window { width: style.columns.saturating_sub(last.to_string().len() + 3), ends: None };
    let mut snippet = Snippet::source(text.clone()).line_start(number(first)).path(escape_controls(file));
    for label in &labels {
        let line = sources.line(&label.location).unwrap_or_default();
        let before = text.split('\n').take(number(label.location.line - first));
        let start = before.map(|line| line.len() + 1).sum();
        let annotation = window.annotation(label, line, start);
        if !annotation.as_ref().is_some_and(|(_, has_label)| *has_label) {
            footnotes.extend(footnote(label));
        }
        if let Some((annotation, _)) = annotation {
            snippet = snippet.annotation(annotation);
        }
    }
    Ok(snippet)
}

/// The visible part of a line that is too long.
struct Window {
    width: usize,
    /// The first and the last labelled column.
    ends: Option<(usize, usize)>,
}

impl Window {
    /// The label as an annotation, and whether its text fits next to it. `start` is the start of its line in the source, in bytes. None if
    /// the window cannot show it together with the labels before it.
    fn annotation(&mut self, label: &Label, line: &str, start: usize) -> Option<(Annotation<'static>, bool)> {
        let is_cut = line.chars().count() > self.width;
        let widest = self.width.saturating_sub(ELLIPSES).max(1);
        let (from, mut to) = columns(line, &label.location);
        if is_cut {
            to = to.min(from + widest);
        }
        let ends = self.ends.map_or((from, to), |(first, last)| (first.min(from), last.max(to)));
        if is_cut && ends.1 - ends.0 > widest {
            return None;
        }
        self.ends = Some(ends);
        let kind = if label.is_primary { AnnotationKind::Primary } else { AnnotationKind::Context };
        let bytes = |chars: usize| line.chars().take(chars).map(char::len_utf8).sum::<usize>();
        let annotation = kind.span(start + bytes(from)..start + bytes(to));
        let fits = !is_cut && to + 1 + label.text.chars().count() <= self.width;
        Some(if fits && !label.text.is_empty() {
            (annotation.label(label.text.clone()), true)
        } else {
            (annotation, false)
        })
    }
}

fn footnote(label: &Label) -> Option<String> {
    (!label.text.is_empty()).then(|| format!("{}: {}", label.location, label.text))
}

/// The first character of the label, and the one after its last.
fn columns(line: &str, location: &Location) -> (usize, usize) {
    let length = line.chars().count();
    let blanks = |chars: &mut dyn Iterator<Item = char>| chars.take_while(|c| *c == ' ').count();
    let number = |number: u32| usize::try_from(number).unwrap_or(0);
    let column = number(location.column);
    if column == 0 || column > length {
        let text_end = length - blanks(&mut line.chars().rev());
        return (blanks(&mut line.chars()).min(text_end), text_end);
    }
    let from = column - 1;
    let width = match number(location.width) {
        0 => line.chars().skip(from).take_while(|c| *c != ' ').count(),
        width => width,
    };
    (from, (from + width.max(1)).min(length))
}
