//! How deep an expression goes with the variables it names, so that no walk over
//! it, its types or its values overflows a stack. Variables are worked out each
//! within the other, and every turn of a chain of loops puts what the turn before
//! made into something larger: neither shows in the depth of one syntax tree.

use super::Declared;
use super::ast::{DEEPEST, Kind, Node};

/// Levels of an expression, its variables' included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Levels {
    /// Of parts within parts.
    pub nested: u16,
    /// At most of lists, maps, objects and optionals put around what it is given.
    pub built: u16,
}

/// The levels of a tree.
///
/// # Errors
/// The place of the first part that goes deeper than [`DEEPEST`], and why.
pub(super) fn levels(node: &Node, declared: &Declared) -> Result<Levels, (u32, String)> {
    let (inner, adds) = match variable(node).and_then(|name| declared.variable(name)) {
        Some(program) => (program.levels, 0),
        None => {
            let mut inner = Levels::default();
            let looped = is_loop(&node.kind);
            // A loop's body takes an element of its range, a level less, for its
            // own, and what it makes goes into a list or map again.
            let mut range = u16::from(looped);
            for (i, part) in node.kind.parts().into_iter().enumerate() {
                let part = levels(part, declared)?;
                inner.nested = inner.nested.max(part.nested);
                if i == 0 && looped {
                    range = range.max(part.built);
                } else {
                    inner.built = inner.built.max(part.built);
                }
            }
            inner.built += range;
            (inner, u16::from(!looped && wraps(&node.kind)))
        }
    };
    let levels = Levels {
        nested: inner.nested + 1,
        built: inner.built + adds,
    };
    let deepest = format!("deeper than {DEEPEST} levels");
    if levels.nested > DEEPEST {
        let reason = format!(
            "the expression and the variables it uses are nested {deepest} together; make \
             fewer variables of others"
        );
        return Err((node.at, reason));
    }
    if levels.built > DEEPEST {
        let reason = format!(
            "the expression and the variables it uses build lists, maps and objects nested \
             {deepest}; build flatter ones"
        );
        return Err((node.at, reason));
    }
    Ok(levels)
}

/// The name in `variables.name`.
fn variable(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Select { operand, field, .. } => {
            matches!(&operand.kind, Kind::Name(name) if name == "variables").then_some(field)
        }
        _ => None,
    }
}

/// Whether this may be `range.loop(x, ..)`: anything that looks like it.
fn is_loop(kind: &Kind) -> bool {
    match kind {
        Kind::Call {
            target, arguments, ..
        } => {
            let named = matches!(arguments.first().map(|a| &a.kind), Some(Kind::Name(_)));
            target.is_some() && named && arguments.len() > 1
        }
        _ => false,
    }
}

/// Whether the value may be one level deeper than the values of the parts.
fn wraps(kind: &Kind) -> bool {
    match kind {
        Kind::Literal(_) | Kind::Name(_) | Kind::Logic { .. } => false,
        Kind::Select { optional, .. } => *optional,
        Kind::Call { name, .. } => {
            let operator = name.contains('_') && !name.starts_with(char::is_alphabetic);
            name == "_[?_]" || !operator && name != "@in"
        }
        Kind::List(_) | Kind::Map(_) | Kind::Struct { .. } => true,
    }
}
