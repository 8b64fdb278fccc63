//! Bounds the depth of an expression together with the variables it uses, so that no recursion
//! overflows the stack. Bounding each syntax tree is not enough: a variable is evaluated within the
//! expression that uses it, and a loop wraps the previous loop's result.

use crate::declarations::Declarations;
use crate::ir::Levels;
use crate::syntax::ast::{MAX_DEPTH, Node, NodeKind};

/// Returns the levels of an expression. Fails with the byte offset of the first part that is deeper
/// than [`MAX_DEPTH`], and the reason.
pub(crate) fn levels(node: &Node, declarations: &Declarations) -> Result<Levels, (u32, String)> {
    let (inner, adds) = match variable(node).and_then(|name| declarations.variable(name)) {
        Some(program) => (program.levels, 0),
        None => {
            let mut inner = Levels::default();
            let looped = is_loop(&node.kind);
            // A loop's body takes an element of the range, which has one level less than the range,
            // and the body's result goes into a list or map.
            let mut range = u16::from(looped);
            for (i, part) in node.kind.parts().into_iter().enumerate() {
                let part = levels(part, declarations)?;
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
    let deepest = format!("deeper than {MAX_DEPTH} levels");
    if levels.nested > MAX_DEPTH {
        let reason = format!(
            "the expression and the variables it uses are nested {deepest} together; make \
             fewer variables of others"
        );
        return Err((node.at, reason));
    }
    if levels.built > MAX_DEPTH {
        let reason = format!(
            "the expression and the variables it uses build lists, maps and objects nested \
             {deepest}; build flatter ones"
        );
        return Err((node.at, reason));
    }
    Ok(levels)
}

fn variable(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Select { operand, field, .. } => {
            matches!(&operand.kind, NodeKind::Name(name) if name == "variables").then_some(field)
        }
        _ => None,
    }
}

/// Returns whether the node may be a comprehension, such as `range.map(x, ..)`.
fn is_loop(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Call {
            target, arguments, ..
        } => {
            let named = matches!(arguments.first().map(|a| &a.kind), Some(NodeKind::Name(_)));
            target.is_some() && named && arguments.len() > 1
        }
        _ => false,
    }
}

/// Returns whether the node's value may be one level deeper than the values of its parts.
fn wraps(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Literal(_) | NodeKind::Name(_) | NodeKind::Logic { .. } => false,
        NodeKind::Select { optional, .. } => *optional,
        NodeKind::Call { name, .. } => {
            let operator = name.contains('_') && !name.starts_with(char::is_alphabetic);
            name == "_[?_]" || !operator && name != "@in"
        }
        NodeKind::List(_) | NodeKind::Map(_) | NodeKind::Struct { .. } => true,
    }
}
