//! From the YAML parser's events to nodes with places.

use std::collections::{BTreeSet, HashMap};

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::{BadDocument, Entry, MAX_DEPTH, Node, Value, scalar};
use crate::kubelet::location::Location;
use crate::kubelet::text::to_u32;

/// The most bytes that a document's values take, aliases counted; the largest kubeconfig we know has some thousand.
const MAX_BYTES: usize = 24 << 20;

/// What a value needs in addition to its text.
const VALUE_BYTES: usize = 128;

struct Builder<'a> {
    file: &'a Location,
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    bytes: usize,
}

/// Reads the first document of `text`, as the kubelet does. Text without a document is `null`.
pub fn parse(file: &Location, text: &str) -> Result<Node, BadDocument> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder { file, text, parser, anchors: HashMap::new(), bytes: 0 };
    loop {
        match builder.event()? {
            (Event::DocumentStart(_, Some(version)), span) if (version.major, version.minor) != (1, 1) => {
                return Err(builder.bad(span.start, "the %YAML directive asks for a version other than 1.1"));
            }
            (Event::StreamStart | Event::DocumentStart(..), _) => {}
            (Event::StreamEnd, _) => return Ok(Node { value: Value::Null, at: file.clone() }),
            (event, span) => {
                let root = builder.node(event, span, 0)?;
                // Text after the value is an error of the same document.
                return builder.event().map(|_| root);
            }
        }
    }
}

impl<'a> Builder<'a> {
    fn event(&mut self) -> Result<(Event<'a>, Span), BadDocument> {
        match self.parser.next() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => Err(self.scan_error(&error)),
            None => Err(BadDocument { at: self.file.clone(), reason: "it ends within a value".to_owned() }),
        }
    }

    /// The value that begins with `event`, within `depth` lists and maps.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, BadDocument> {
        self.count(VALUE_BYTES, span)?;
        let (value, anchor, at) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(text.len(), span)?;
                (scalar::resolve(style, tag.as_deref(), &text), anchor, self.place_of(span))
            }
            Event::Alias(id) => return self.copy_of_anchor(id, span, depth),
            _ if depth == MAX_DEPTH => return Err(self.too_deep(span)),
            Event::SequenceStart(_, anchor, _) => (self.list(depth + 1)?, anchor, self.place(span.start, 0)),
            Event::MappingStart(_, anchor, _) => (self.map(depth + 1)?, anchor, self.place(span.start, 0)),
            _ => return Err(self.bad(span.start, "a value is missing")),
        };
        let node = Node { value, at };
        if anchor != 0 {
            self.count(size(&node).0, span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, BadDocument> {
        let mut items = Vec::new();
        loop {
            match self.event()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, span) => items.push(self.node(event, span, depth)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, BadDocument> {
        let (mut entries, mut merged) = (Vec::new(), BTreeSet::new());
        loop {
            let (event, span) = self.event()?;
            if event == Event::MappingEnd {
                return Ok(Value::Map(entries));
            }
            if matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text.as_ref() == "<<") {
                let (event, span) = self.event()?;
                let value = self.node(event, span, depth)?;
                self.merge(value, span, &mut entries, &mut merged)?;
                continue;
            }
            let key = self.node(event, span, depth)?;
            let text = scalar::key(key.value).map_err(|reason| self.bad(span.start, reason))?;
            let (event, span) = self.event()?;
            let node = self.node(event, span, depth)?;
            // What is merged is overridden and not there twice.
            if merged.remove(&text) {
                entries.retain(|entry: &Entry| entry.key != text);
            }
            entries.push(Entry { key: text, at: key.at, node });
        }
    }

    /// The entries of a map, or of several, after the key `<<`: of a list the first that has a key counts.
    fn merge(
        &self,
        value: Node,
        span: Span,
        entries: &mut Vec<Entry>,
        merged: &mut BTreeSet<String>,
    ) -> Result<(), BadDocument> {
        let maps = if let Value::List(items) = value.value { items } else { vec![value] };
        for map in maps.into_iter().rev() {
            let Value::Map(others) = map.value else {
                return Err(self.bad(span.start, "a merge key (`<<`) takes a map or a list of maps"));
            };
            for other in others {
                entries.retain(|entry| entry.key != other.key);
                merged.insert(other.key.clone());
                entries.push(other);
            }
        }
        Ok(())
    }

    fn copy_of_anchor(&mut self, id: usize, span: Span, depth: usize) -> Result<Node, BadDocument> {
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(self.bad(span.start, "an anchor's value contains itself"));
        };
        let (bytes, levels) = size(anchored);
        if depth + levels > MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        let copy = anchored.clone();
        self.count(bytes, span)?;
        Ok(copy)
    }

    fn count(&mut self, bytes: usize, span: Span) -> Result<(), BadDocument> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            return Err(self.bad(span.start, "it has more values than are read (those of its aliases count)"));
        }
        Ok(())
    }

    fn too_deep(&self, span: Span) -> BadDocument {
        self.bad(span.start, format!("it is nested deeper than {MAX_DEPTH} levels"))
    }

    fn bad(&self, mark: Marker, reason: impl Into<String>) -> BadDocument {
        BadDocument { at: self.place(mark, 0), reason: reason.into() }
    }

    fn scan_error(&self, error: &ScanError) -> BadDocument {
        let mark = *error.marker();
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => self.bad(mark, format!("it is nested deeper than {MAX_DEPTH} levels")),
            ErrorKind::TabInPlainScalar
            | ErrorKind::TabInIndentation
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabNotAllowed => self.tab_error(mark),
            _ => self.bad(mark, error.info()),
        }
    }

    /// The parser names where the value before the tab begins; the reader wants the tab.
    fn tab_error(&self, mark: Marker) -> BadDocument {
        let indented = |line: &str| {
            let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
            line[..blank].find('\t')
        };
        let mut lines = self.text.lines().zip(1..).skip(mark.line().saturating_sub(1));
        let found = lines.find_map(|(line, number)| Some((number, indented(line)?)));
        let tab = found.map(|(line, column)| self.file.at(line, to_u32(column + 1), 1));
        BadDocument {
            at: tab.unwrap_or_else(|| self.place(mark, 0)),
            reason: "a tab is in the indentation, where YAML takes only spaces".to_owned(),
        }
    }

    fn place(&self, mark: Marker, width: u32) -> Location {
        self.file.at(to_u32(mark.line()), to_u32(mark.col() + 1), width)
    }

    /// The place of a scalar; of one that takes several lines only where it begins.
    fn place_of(&self, span: Span) -> Location {
        let width = if span.start.line() == span.end.line() { to_u32(span.len()) } else { 0 };
        self.place(span.start, width)
    }
}

/// The bytes that a copy takes, and how many levels of lists and maps it has.
fn size(node: &Node) -> (usize, usize) {
    let text = if let Value::String(text) | Value::Number(text) = &node.value { text.len() } else { 0 };
    let below = node.items().iter().chain(node.entries().iter().map(|entry| &entry.node)).map(size);
    let is_deep = usize::from(matches!(node.value, Value::List(_) | Value::Map(_)));
    let keys: usize = node.entries().iter().map(|entry| VALUE_BYTES + entry.key.len()).sum();
    below.fold((VALUE_BYTES + text + keys, is_deep), |(bytes, levels), (more, below)| {
        (bytes + more, levels.max(below + 1))
    })
}
