//! Parses the declarations of functions from text such as `string.indexOf(string, int): int`.

use std::collections::HashMap;

use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::resolver::Resolver;
use crate::types::Type;
use crate::value::Value;

pub(crate) struct CallContext<'a> {
    pub budget: &'a mut Budget,
    pub resolver: &'a dyn Resolver,
}

/// The implementation of a function. The target of a member is the first argument.
pub(crate) type Implementation =
    fn(&mut CallContext<'_>, &[Value]) -> Result<Value, EvaluationError>;

/// The overloads of a function, as text, with their common implementation.
pub(crate) type Function = (&'static [&'static str], Implementation);

#[derive(Debug)]
pub(crate) struct Overload {
    pub member: bool,
    pub parameters: Vec<Type>,
    pub result: Type,
    /// The function's number, which all overloads with the same implementation share.
    pub function: usize,
    pub implementation: Implementation,
}

pub(crate) type Library = HashMap<String, Vec<Overload>>;

pub(crate) fn declare(library: &mut Library, functions: &[Function]) {
    let first: usize = library
        .values()
        .flatten()
        .map(|overload| overload.function + 1)
        .max()
        .unwrap_or(0);
    for (index, (declarations, implementation)) in functions.iter().enumerate() {
        for text in *declarations {
            let Some((name, member, parameters, result)) = read(text) else {
                debug_assert!(false, "a declaration that does not parse: {text}");
                continue;
            };
            let overload = Overload {
                member,
                parameters,
                result,
                function: first + index,
                implementation: *implementation,
            };
            library.entry(name).or_default().push(overload);
        }
    }
}

fn read(text: &str) -> Option<(String, bool, Vec<Type>, Type)> {
    let (head, result) = text.rsplit_once(": ")?;
    let (head, arguments) = head.strip_suffix(')')?.split_once('(')?;
    // A function with a dotted name is written in quotes: `'ip.isCanonical'(..)`.
    let (target, name) = match head.strip_prefix('\'') {
        Some(name) => (None, name.strip_suffix('\'')?),
        None => match head.rsplit_once('.') {
            Some((target, name)) => (Some(target), name),
            None => (None, head),
        },
    };
    let mut parameters = Vec::new();
    if let Some(target) = target {
        parameters.push(read_type(target)?);
    }
    for each in split(arguments) {
        parameters.push(read_type(each)?);
    }
    Some((
        name.to_owned(),
        target.is_some(),
        parameters,
        read_type(result)?,
    ))
}

/// Splits a text at its top-level commas.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

fn read_type(text: &str) -> Option<Type> {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let mut inner = split(inner).into_iter().map(read_type);
        let first = inner.next()??;
        return Some(match outer {
            "list" => Type::list(first),
            "optional" => Type::optional(first),
            "map" => Type::map(first, inner.next()??),
            "type" => Type::Type(first.into()),
            _ => return None,
        });
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "A" => Type::Unknown(0),
        "B" => Type::Unknown(1),
        "IP" => Type::Opaque("net.IP"),
        "CIDR" => Type::Opaque("net.CIDR"),
        "URL" => Type::Record("kubernetes.URL"),
        "Quantity" => Type::Record("kubernetes.Quantity"),
        "Semver" => Type::Record("kubernetes.Semver"),
        "Format" => Type::Record("kubernetes.NamedFormat"),
        "ResourceName" => Type::Record("tautline.ResourceName"),
        "Authorizer" => Type::Record("kubernetes.authorization.Authorizer"),
        "PathCheck" => Type::Record("kubernetes.authorization.PathCheck"),
        "GroupCheck" => Type::Record("kubernetes.authorization.GroupCheck"),
        "ResourceCheck" => Type::Record("kubernetes.authorization.ResourceCheck"),
        "Decision" => Type::Record("kubernetes.authorization.Decision"),
        _ => return None,
    })
}
