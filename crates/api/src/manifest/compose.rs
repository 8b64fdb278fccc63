//! Composes the documents of a YAML text as kubectl's parser does: the last of several equal keys
//! counts, and a merge key takes effect at its place in the mapping.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry};

use granit_parser::{Event, Parser, ScalarStyle, ScanError};
use serde_json::{Map, Value};

use super::{
    path::FieldPath,
    scalar::{self, YamlError},
};

/// The maximum depth of a document with its aliases in place, because the functions on a tree
/// recurse.
const MAX_DEPTH: usize = 512;
/// The maximum size of all nodes that aliases and anchors copy in one text.
const MAX_COPIED_BYTES: usize = 128 << 20;
/// The size that a node counts for, in addition to its text.
const NODE_BYTES: usize = 64;

/// A value with the lines of its parts.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Scalar(Value),
    List(Vec<(u64, Node)>),
    Mapping(BTreeMap<String, (u64, Node)>),
}

/// A document that is not empty.
pub(super) struct Composed {
    pub root: Node,
    /// The paths of keys that their mapping repeats.
    pub duplicates: Vec<FieldPath>,
    /// The paths of scalars that JSON does not have, with the problems. They are texts in `root`.
    pub invalid: Vec<(FieldPath, String)>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} column {column}: {what}")]
pub(super) struct ComposeError {
    line: u64,
    column: usize,
    what: YamlError,
}

/// Calls `each` with the documents of a text. `first_line` is the number of the text's first line.
pub(super) fn compose(
    text: &str,
    first_line: u64,
    each: &mut dyn FnMut(Composed),
) -> Result<(), ComposeError> {
    let options = granit_parser::options! { emit_comments: false };
    let mut composer = Composer::default();
    let line = |at: usize| first_line - 1 + at as u64;
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|e: ScanError| ComposeError {
            line: line(e.marker().line()),
            column: e.marker().col() + 1,
            what: YamlError::Syntax(e.info()),
        })?;
        let (start, column) = (line(span.start.line()), span.start.col() + 1);
        let composed = composer.take(event, start);
        let composed = composed.map_err(|what| ComposeError {
            line: start,
            column,
            what,
        })?;
        if let Some(document) = composed {
            each(document);
        }
    }
    Ok(())
}

#[derive(Default)]
struct Composer {
    open: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    copied_bytes: usize,
    root: Option<Node>,
    duplicates: Vec<FieldPath>,
    invalid: Vec<(FieldPath, String)>,
    /// True after the first document.
    has_ended: bool,
    /// True in a document that kubectl does not read: it follows a line `...` without `---`.
    is_dropped: bool,
}

/// A collection whose end has not been read.
struct Frame {
    line: u64,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<(u64, Node)>),
    Mapping(Fields),
}

#[derive(Default)]
struct Fields {
    fields: BTreeMap<String, (u64, Node)>,
    /// The keys that come from a merge key. The mapping may have them again.
    merged: BTreeSet<String>,
    /// The key of the value that follows.
    key: Option<Key>,
}

enum Key {
    Name(String, u64),
    /// The merge key `<<`, whose value is merged into the mapping.
    Merge,
}

impl Composer {
    fn take(&mut self, event: Event<'_>, line: u64) -> Result<Option<Composed>, YamlError> {
        match event {
            Event::DocumentStart(is_explicit, _) => {
                self.anchors.clear();
                self.is_dropped = self.has_ended && !is_explicit;
            }
            Event::DocumentEnd => {
                self.has_ended = true;
                let duplicates = std::mem::take(&mut self.duplicates);
                let root = self.root.take();
                let root = root
                    .filter(|root| !self.is_dropped && !matches!(root, Node::Scalar(Value::Null)));
                let invalid = std::mem::take(&mut self.invalid);
                let composed = |root| Composed {
                    root,
                    duplicates,
                    invalid,
                };
                return Ok(root.map(composed));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let resolved = scalar::resolve(&text, plain, tag.as_deref());
                let value = resolved.unwrap_or_else(|error| {
                    self.invalid.push((self.path(), error.to_string()));
                    Value::from(&*text)
                });
                let merges = plain && text == "<<" && tag.is_none();
                self.add(line, anchor, Node::Scalar(value), merges)?;
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(line, anchor, Content::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, _) => {
                self.begin(line, anchor, Content::Mapping(Fields::default()))?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.open.pop() {
                    let node = match frame.content {
                        Content::List(items) => Node::List(items),
                        Content::Mapping(mapping) => Node::Mapping(mapping.fields),
                    };
                    self.add(frame.line, frame.anchor, node, false)?;
                }
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or(YamlError::AliasInside)?;
                self.copy(&node)?;
                self.add(line, 0, node, false)?;
            }
            _ => {}
        }
        Ok(None)
    }

    fn begin(&mut self, line: u64, anchor: usize, content: Content) -> Result<(), YamlError> {
        if let Some(Content::Mapping(mapping)) = self.open.last().map(|frame| &frame.content)
            && mapping.key.is_none()
        {
            return Err(YamlError::NoKey);
        }
        self.open.push(Frame {
            line,
            anchor,
            content,
        });
        Ok(())
    }

    fn add(&mut self, line: u64, anchor: usize, node: Node, merges: bool) -> Result<(), YamlError> {
        if anchor != 0 {
            self.copy(&node)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let again = match &mut frame.content {
            Content::List(items) => {
                items.push((line, node));
                None
            }
            Content::Mapping(mapping) => mapping.add(line, node, merges)?,
        };
        if let Some(key) = again {
            let path = self.path().key(&key);
            self.duplicates.push(path);
        }
        Ok(())
    }

    /// Counts a copy of a node, for an alias or an anchor. Fails if the copies are too large or too
    /// deep.
    fn copy(&mut self, node: &Node) -> Result<(), YamlError> {
        let (depth, bytes) = node.measure();
        self.copied_bytes += bytes;
        if self.open.len() + depth > MAX_DEPTH {
            return Err(YamlError::TooDeep(MAX_DEPTH));
        }
        if self.copied_bytes > MAX_COPIED_BYTES {
            return Err(YamlError::TooLarge(MAX_COPIED_BYTES >> 20));
        }
        Ok(())
    }

    /// Returns the path of the innermost open collection.
    fn path(&self) -> FieldPath {
        let root = FieldPath::default();
        let step = |path: FieldPath, frame: &Frame| match &frame.content {
            Content::List(items) => path.index(items.len()),
            Content::Mapping(mapping) => match &mapping.key {
                Some(Key::Name(name, _)) => path.key(name),
                _ => path,
            },
        };
        self.open.iter().fold(root, step)
    }
}

impl Fields {
    /// Adds a key, or the value of the last key. Returns the key if the mapping repeats it.
    fn add(&mut self, line: u64, node: Node, merges: bool) -> Result<Option<String>, YamlError> {
        match (self.key.take(), node) {
            (None, _) if merges => self.key = Some(Key::Merge),
            (None, Node::Scalar(value)) => self.key = Some(Key::Name(scalar::key(value)?, line)),
            (None, _) => return Err(YamlError::NoKey),
            (Some(Key::Merge), Node::Mapping(fields)) => self.merge(fields),
            // The first mapping in the list takes precedence, so it is merged last.
            (Some(Key::Merge), Node::List(items)) => {
                for (_, item) in items.into_iter().rev() {
                    match item {
                        Node::Mapping(fields) => self.merge(fields),
                        _ => return Err(YamlError::NoMapping),
                    }
                }
            }
            (Some(Key::Merge), Node::Scalar(_)) => return Err(YamlError::NoMapping),
            (Some(Key::Name(name, line)), node) => match self.fields.entry(name) {
                Entry::Vacant(free) => _ = free.insert((line, node)),
                Entry::Occupied(mut taken) => {
                    taken.insert((line, node));
                    let again = !self.merged.remove(taken.key());
                    return Ok(again.then(|| taken.key().clone()));
                }
            },
        }
        Ok(None)
    }

    fn merge(&mut self, fields: BTreeMap<String, (u64, Node)>) {
        self.merged.extend(fields.keys().cloned());
        self.fields.extend(fields);
    }
}

impl Node {
    /// Returns the node's depth, and its size in memory in bytes.
    fn measure(&self) -> (usize, usize) {
        let sum = |(depth, bytes): (usize, usize), (below, more): (usize, usize)| {
            (depth.max(below + 1), bytes + more)
        };
        match self {
            Self::Scalar(Value::String(text)) => (1, NODE_BYTES + text.len()),
            Self::Scalar(_) => (1, NODE_BYTES),
            Self::List(items) => {
                let items = items.iter().map(|(_, item)| item.measure());
                items.fold((1, NODE_BYTES), sum)
            }
            Self::Mapping(fields) => {
                let fields = fields.iter().map(|(key, (_, node))| {
                    let (depth, bytes) = node.measure();
                    (depth, bytes + key.len())
                });
                fields.fold((1, NODE_BYTES), sum)
            }
        }
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Scalar(value) => value,
            Self::List(items) => items.into_iter().map(|(_, n)| n.into_value()).collect(),
            Self::Mapping(fields) => {
                let fields = fields.into_iter().map(|(k, (_, n))| (k, n.into_value()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns the first line of the node's parts.
    pub(super) fn first_line(&self) -> Option<u64> {
        match self {
            Self::Scalar(_) => None,
            Self::List(items) => items.first().map(|(line, _)| *line),
            Self::Mapping(fields) => fields.values().map(|(line, _)| *line).min(),
        }
    }
}
