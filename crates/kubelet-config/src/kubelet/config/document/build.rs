//! From the YAML parser's events to nodes with places. A stack of open lists and maps stands in for recursion.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Span};

use super::{
    super::super::location::Location,
    BadDocument, Entry, MAX_DEPTH, Node, Value,
    scalar::{self, Tag},
};

/// The most values of a document, those by aliases counted; the largest kubeconfig we know has some thousand.
const MAX_NODES: usize = 200_000;

/// The most bytes that anchors and aliases may copy, a node counted as [`NODE_BYTES`].
const MAX_COPIED_BYTES: usize = 8 << 20;

/// What a node takes beside its text.
const NODE_BYTES: usize = 128;

/// A node and what is known of it while it is built.
struct Built {
    node: Node,
    /// What a copy takes.
    bytes: usize,
    nodes: usize,
    /// How many levels of lists and maps it has.
    height: usize,
    /// Whether it is a plain `<<`.
    is_merge_key: bool,
}

/// A list or a map that is not closed yet.
struct Open {
    at: Location,
    anchor: usize,
    bytes: usize,
    nodes: usize,
    height: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<Key> },
}

struct Key {
    text: String,
    at: Location,
    is_merge: bool,
}

struct Builder<'a> {
    file: &'a Location,
    open: Vec<Open>,
    anchors: HashMap<usize, Built>,
    nodes: usize,
    copied_bytes: usize,
    root: Option<Node>,
}

/// Reads the first document of `text`, as the kubelet does. Text without a document is `null`.
pub fn parse(file: &Location, text: &str) -> Result<Node, BadDocument> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut builder =
        Builder { file, open: Vec::new(), anchors: HashMap::new(), nodes: 0, copied_bytes: 0, root: None };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| builder.scan_error(text, &error))?;
        if matches!(event, Event::DocumentEnd | Event::StreamEnd) {
            break;
        }
        builder.take(event, span).map_err(|reason| builder.bad(span.start, reason))?;
    }
    Ok(builder.root.unwrap_or(Node { value: Value::Null, at: file.clone() }))
}

impl Builder<'_> {
    fn bad(&self, mark: Marker, reason: impl Into<String>) -> BadDocument {
        BadDocument { at: self.place(mark, 0), reason: reason.into() }
    }

    fn scan_error(&self, text: &str, error: &ScanError) -> BadDocument {
        let mark = *error.marker();
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => self.bad(mark, format!("nested deeper than {MAX_DEPTH} levels")),
            ErrorKind::TabInPlainScalar
            | ErrorKind::TabInIndentation
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabNotAllowed => self.tab_error(text, mark),
            _ => self.bad(mark, error.info()),
        }
    }

    /// The parser names where the value before the tab begins; the reader wants the tab.
    fn tab_error(&self, text: &str, mark: Marker) -> BadDocument {
        let indented = |line: &str| {
            let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
            line[..blank].find('\t')
        };
        let mut lines = text.lines().zip(1..).skip(mark.line().saturating_sub(1));
        let found = lines.find_map(|(line, number)| Some((number, indented(line)?)));
        BadDocument {
            at: found.map_or_else(
                || self.place(mark, 0),
                |(line, column)| self.file.at(line, u32::try_from(column + 1).unwrap_or(u32::MAX), 1),
            ),
            reason: "a tab in the indentation: YAML wants blanks".to_owned(),
        }
    }

    fn place(&self, mark: Marker, width: u32) -> Location {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        self.file.at(number(mark.line()), number(mark.col() + 1), width)
    }

    /// The place of a scalar; of one that takes several lines only where it begins.
    fn place_of(&self, span: Span) -> Location {
        let width = if span.start.line() == span.end.line() { u32::try_from(span.len()).unwrap_or(0) } else { 0 };
        self.place(span.start, width)
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), &'static str> {
        match event {
            Event::DocumentStart(_, Some(version)) if (version.major, version.minor) != (1, 1) => {
                Err("the %YAML directive asks for another version than 1.1")
            }
            Event::Scalar(text, style, anchor, tag) => {
                let built = self.scalar(&text, style, tag.as_deref(), span)?;
                self.close(built, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(span, anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Map { entries: Vec::new(), key: None };
                self.begin(span, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => {
                let copy = self.copy_of_anchor(id)?;
                self.close(copy, 0)
            }
            _ => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&granit_parser::Tag>,
        span: Span,
    ) -> Result<Built, &'static str> {
        let is_plain = style == ScalarStyle::Plain;
        let asked = tag.map_or(Tag::None, |tag| match tag.core_suffix() {
            Some("str") => Tag::Str,
            Some("bool") => Tag::Wants("bool"),
            Some("int") => Tag::Wants("int"),
            Some("float") => Tag::Wants("float"),
            Some("null") => Tag::Wants("null"),
            _ => Tag::Other,
        });
        let value = if asked == Tag::None && !is_plain {
            Value::String(text.to_owned())
        } else {
            scalar::resolve(asked, text)?
        };
        self.count(1)?;
        Ok(Built {
            is_merge_key: is_plain && asked == Tag::None && text == "<<",
            node: Node { value, at: self.place_of(span) },
            bytes: NODE_BYTES + text.len(),
            nodes: 1,
            height: 0,
        })
    }

    fn count(&mut self, nodes: usize) -> Result<(), &'static str> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err("has more values than we are ready to read");
        }
        Ok(())
    }

    fn begin(&mut self, span: Span, anchor: usize, content: Content) -> Result<(), &'static str> {
        if self.open.len() >= MAX_DEPTH {
            return Err("is nested deeper than we are ready to read");
        }
        self.count(1)?;
        self.open.push(Open { at: self.place(span.start, 0), anchor, bytes: NODE_BYTES, nodes: 1, height: 1, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), &'static str> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        let built = Built {
            node: Node { value, at: open.at },
            bytes: open.bytes,
            nodes: open.nodes,
            height: open.height,
            is_merge_key: false,
        };
        self.close(built, open.anchor)
    }

    /// Puts a finished node where it belongs.
    fn close(&mut self, built: Built, anchor: usize) -> Result<(), &'static str> {
        if anchor != 0 {
            self.count_copy(built.bytes)?;
            self.anchors.insert(anchor, built.copy());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(built.node);
            return Ok(());
        };
        open.bytes = open.bytes.saturating_add(built.bytes);
        open.nodes = open.nodes.saturating_add(built.nodes);
        open.height = open.height.max(built.height + 1);
        match &mut open.content {
            Content::List(items) => items.push(built.node),
            Content::Map { entries, key } => match key.take() {
                None => {
                    *key = Some(Key {
                        at: built.node.at.clone(),
                        is_merge: built.is_merge_key,
                        text: scalar::key(built.node.value)?,
                    });
                }
                Some(key) if key.is_merge => merge(entries, built.node)?,
                Some(key) => entries.push(Entry { key: key.text, at: key.at, node: built.node, merged: false }),
            },
        }
        Ok(())
    }

    fn count_copy(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        if self.copied_bytes > MAX_COPIED_BYTES {
            return Err("its anchors and aliases make more of it than we are ready to read");
        }
        Ok(())
    }

    fn copy_of_anchor(&mut self, id: usize) -> Result<Built, &'static str> {
        let Some(anchored) = self.anchors.get(&id) else {
            return Err("an anchor's value contains itself");
        };
        let (bytes, nodes, height) = (anchored.bytes, anchored.nodes, anchored.height);
        if self.open.len() + height > MAX_DEPTH {
            return Err("is nested deeper than we are ready to read");
        }
        self.count(nodes)?;
        self.count_copy(bytes)?;
        self.anchors.get(&id).map(Built::copy).ok_or("an anchor's value contains itself")
    }
}

impl Built {
    fn copy(&self) -> Self {
        Self { node: self.node.clone(), is_merge_key: false, ..*self }
    }
}

/// `<<: {…}` or `<<: [{…}, …]`: the entries of the maps, of several the first one's count.
fn merge(entries: &mut Vec<Entry>, node: Node) -> Result<(), &'static str> {
    let mut add = |map: Node| match map.value {
        Value::Map(from) => {
            entries.extend(from.into_iter().map(|entry| Entry { merged: true, ..entry }));
            Ok(())
        }
        _ => Err("`<<` wants a map or a list of maps"),
    };
    match node.value {
        Value::List(maps) => maps.into_iter().rev().try_for_each(add),
        _ => add(node),
    }
}
