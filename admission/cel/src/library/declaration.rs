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

/// The implementation of a module's functions, which it tells apart by name and arguments. The
/// target of a member is the first argument.
pub(crate) type Implementation =
    fn(&Overload, &mut CallContext<'_>, &[Value]) -> Result<Value, EvaluationError>;

/// The declarations of functions, separated by lines and semicolons, with their implementation.
/// `a|b(int): int` declares two functions, and `ordered` stands for every type that has an order.
pub(crate) type Module = (&'static str, Implementation);

#[derive(Debug)]
pub(crate) struct Overload {
    pub name: &'static str,
    pub member: bool,
    pub parameters: Vec<Type>,
    pub result: Type,
    /// The number of the module, which finds the overload of its functions by itself.
    pub module: usize,
    implementation: Implementation,
}

impl Overload {
    pub(crate) fn call(
        &self,
        context: &mut CallContext<'_>,
        arguments: &[Value],
    ) -> Result<Value, EvaluationError> {
        (self.implementation)(self, context, arguments)
    }
}

pub(crate) type Library = HashMap<&'static str, Vec<Overload>>;

const ORDERED: [&str; 8] = [
    "int",
    "uint",
    "double",
    "bool",
    "duration",
    "timestamp",
    "string",
    "bytes",
];

pub(crate) fn declare(modules: &[Module]) -> Library {
    let mut library = Library::new();
    for (module, (declarations, implementation)) in modules.iter().enumerate() {
        for text in declarations.split(['\n', ';']).map(str::trim) {
            if text.is_empty() {
                continue;
            }
            let Some((names, signatures)) = read(text) else {
                debug_assert!(false, "a declaration that does not parse: {text}");
                continue;
            };
            for name in names.split('|') {
                let overload = |(member, parameters, result)| Overload {
                    name,
                    member,
                    parameters,
                    result,
                    module,
                    implementation: *implementation,
                };
                let overloads = library.entry(name).or_default();
                overloads.extend(signatures.iter().cloned().map(overload));
            }
        }
    }
    library
}

/// The signature of an overload: whether it is a member, its parameters and its result.
type Signature = (bool, Vec<Type>, Type);

/// Returns the names in a declaration, and the signatures that each of them has.
fn read(text: &'static str) -> Option<(&'static str, Vec<Signature>)> {
    let (head, result) = text.rsplit_once(": ")?;
    let (head, arguments) = head.strip_suffix(')')?.split_once('(')?;
    // A function with a dotted name is written in quotes: `'ip.isCanonical'(..)`.
    let (target, names) = match head.strip_prefix('\'') {
        Some(name) => (None, name.strip_suffix('\'')?),
        None => match head.rsplit_once('.') {
            Some((target, name)) => (Some(target), name),
            None => (None, head),
        },
    };
    let parameters: Vec<&str> = target.into_iter().chain(split(arguments)).collect();
    let of = |ordered: &str| {
        let read_type = |text: &&str| read_type(&text.replace("ordered", ordered));
        let parameters = parameters.iter().map(read_type).collect::<Option<_>>()?;
        Some((target.is_some(), parameters, read_type(&result)?))
    };
    let orders: &[&str] = if text.contains("ordered") {
        &ORDERED
    } else {
        &[""]
    };
    Some((
        names,
        orders.iter().copied().map(of).collect::<Option<_>>()?,
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
        _ => return Type::named(text),
    })
}
