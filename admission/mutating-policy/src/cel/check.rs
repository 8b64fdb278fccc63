//! Syntax trees to checked expressions: names, types, calls.

use std::sync::Arc;

use super::ast::{Element, Kind, Node};
use super::ir::{Ir, Item, Mode};
use super::library::library;
use super::records;
use super::types::{Found, Type};
use super::{Declared, Value};

/// A checker at work on one expression.
pub(super) struct Checker<'a> {
    pub declared: &'a Declared,
    pub found: Found,
    /// Loop variables in scope, innermost last; their place is their index.
    pub locals: Vec<(String, Type)>,
    pub refusals: Vec<(u32, String)>,
    /// `check(..)` calls to the authorizer so far.
    pub checks: usize,
    /// Literals whose elements are to be compared once all types are known.
    pub alike: Vec<(u32, Type, Type)>,
    /// Inside the arguments of `format`, whose list may be of several types.
    pub lenient: usize,
    /// The types of the elements of the list literal checked last.
    pub elements: Vec<Type>,
    /// What compiling the literal patterns cost so far.
    pub pattern_units: u64,
}

/// A checked part and its type.
pub(super) type Typed = (Ir, Type);

impl<'a> Checker<'a> {
    pub(super) fn new(declared: &'a Declared) -> Self {
        Self {
            declared,
            found: Found::default(),
            locals: Vec::new(),
            refusals: Vec::new(),
            checks: 0,
            alike: Vec::new(),
            lenient: 0,
            elements: Vec::new(),
            pattern_units: 0,
        }
    }

    /// Notes what is wrong and goes on, so that everything wrong is shown.
    pub(super) fn refuse(&mut self, at: u32, reason: impl Into<String>) -> Typed {
        self.refusals.push((at, reason.into()));
        (Ir::Constant(Value::Null), Type::Dyn)
    }

    /// The type as text, everything known put in.
    pub(super) fn show(&self, of: &Type) -> String {
        self.found.resolve(of, true).to_string()
    }

    /// Whether the type may stand for the wanted one; learns from it if so.
    pub(super) fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        self.found
            .fits_all(std::slice::from_ref(wanted), std::slice::from_ref(given))
    }

    /// Refuses literals of several types: even dyn beside another one.
    pub(super) fn compare_literals(&mut self) {
        for (at, first, other) in std::mem::take(&mut self.alike) {
            let (first, other) = (
                self.found.resolve(&first, true),
                self.found.resolve(&other, true),
            );
            if first != other {
                let reason = format!(
                    "expected type '{first}' but found '{other}': a literal's elements are of one type"
                );
                self.refusals.push((at, reason));
            }
        }
    }

    /// Checks one part.
    pub(super) fn check(&mut self, node: &Node) -> Typed {
        match &node.kind {
            Kind::Literal(value) => (Ir::Constant(value.clone()), literal_type(value)),
            Kind::Name(name) => self.name(node.at, name),
            Kind::Select {
                operand,
                field,
                optional,
            } => self.select(node, operand, field, *optional),
            Kind::Call {
                target,
                name,
                arguments,
            } => self.call(node.at, target.as_deref(), name, arguments),
            Kind::Logic { any, terms } => {
                let terms = terms.iter().map(|term| self.check_bool(term)).collect();
                (Ir::Logic { any: *any, terms }, Type::Bool)
            }
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::Struct { name, fields } => self.object(node.at, name, fields),
        }
    }

    /// Checks a part that must be a bool.
    pub(super) fn check_bool(&mut self, node: &Node) -> Ir {
        let (ir, of) = self.check(node);
        if !self.fits(&of, &Type::Bool) {
            let shown = self.show(&of);
            self.refuse(node.at, format!("expected type 'bool' but found '{shown}'"));
        }
        ir
    }

    fn local(&self, name: &str) -> Option<Typed> {
        let place = self.locals.iter().rposition(|(local, _)| local == name)?;
        Some((Ir::Local(place), self.locals[place].1.clone()))
    }

    fn name(&mut self, at: u32, name: &str) -> Typed {
        if let Some(local) = self.local(name) {
            return local;
        }
        let of = match name {
            "object" | "oldObject" => Type::Dyn,
            "request" => Type::Record("kubernetes.AdmissionRequest"),
            "namespaceObject" => Type::Record("kubernetes.Namespace"),
            "params" if self.declared.params => Type::Dyn,
            "authorizer" if self.declared.authorizer => {
                Type::Record("kubernetes.authorization.Authorizer")
            }
            "params" => {
                return self.refuse(
                    at,
                    "undeclared reference to 'params': the policy has no paramKind",
                );
            }
            "variables" => return self.refuse(at, "variables: name one, as in variables.name"),
            _ => match records::type_named(name) {
                Some(of) => {
                    return (
                        Ir::Constant(Value::Type(name.into())),
                        Type::Type(of.into()),
                    );
                }
                None => return self.refuse(at, format!("undeclared reference to '{name}'")),
            },
        };
        (Ir::Global(name.into()), of)
    }

    /// A dotted name that is one thing: `variables.x`, `authorizer.requestResource`,
    /// a type with dots in its name.
    fn dotted(&mut self, node: &Node) -> Option<Typed> {
        let name = node.qualified()?;
        let root = name.split('.').next().unwrap_or_default();
        if self.local(root).is_some() {
            return None;
        }
        if let Some(variable) = name.strip_prefix("variables.") {
            if variable.contains('.') {
                return None;
            }
            let declared = self.declared.variable(variable);
            return Some(match declared {
                Some(program) => (Ir::Global(name.into()), program.returns().clone()),
                None => self.refuse(
                    node.at,
                    format!("undefined field '{variable}': no variable before this has that name"),
                ),
            });
        }
        if name == "authorizer.requestResource" && self.declared.authorizer {
            return Some((
                Ir::Global(name.into()),
                Type::Record("kubernetes.authorization.ResourceCheck"),
            ));
        }
        let of = records::type_named(&name)?;
        Some((
            Ir::Constant(Value::Type(name.into())),
            Type::Type(of.into()),
        ))
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, optional: bool) -> Typed {
        if !optional && let Some(found) = self.dotted(node) {
            return found;
        }
        let mode = if optional {
            Mode::Optional
        } else {
            Mode::Plain
        };
        self.select_from(node.at, operand, field, mode)
    }

    /// `operand.field`, `operand.?field` or `has(operand.field)`.
    pub(super) fn select_from(
        &mut self,
        at: u32,
        operand: &Node,
        field: &str,
        mode: Mode,
    ) -> Typed {
        let (ir, of) = self.check(operand);
        let of = self.found.resolve(&of, false);
        let (inside, was_optional) = match &of {
            Type::Optional(inner) => (self.found.look(inner), true),
            other => (other.clone(), false),
        };
        let result = match &inside {
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn | Type::Object { .. } => Type::Dyn,
            Type::Unknown(_) => {
                self.fits(&Type::Dyn, &inside);
                Type::Dyn
            }
            Type::Record(name) => match records::field(name, field) {
                Some(of) => of,
                None => return self.refuse(at, format!("undefined field '{field}' of '{name}'")),
            },
            other => {
                let shown = self.show(other);
                return self.refuse(
                    at,
                    format!("type '{shown}' does not support field selection"),
                );
            }
        };
        let result = match mode {
            Mode::Test => Type::Bool,
            Mode::Optional => Type::optional(result),
            Mode::Plain if was_optional => Type::optional(result),
            Mode::Plain => result,
        };
        (
            Ir::Select {
                operand: Box::new(ir),
                field: field.into(),
                mode,
            },
            result,
        )
    }

    /// A literal's element and its type; that inside the optional for `?x`.
    pub(super) fn element(&mut self, element: &Element) -> (Item, Type) {
        let (ir, of) = self.check(&element.node);
        let mut inside = of;
        if element.optional {
            inside = match self.found.look(&inside) {
                Type::Optional(inner) => (*inner).clone(),
                Type::Dyn => Type::Dyn,
                other => {
                    let shown = self.show(&other);
                    self.refuse(
                        element.node.at,
                        format!("expected an optional after '?' but found '{shown}'"),
                    );
                    Type::Dyn
                }
            };
        }
        (
            Item {
                ir,
                optional: element.optional,
            },
            inside,
        )
    }

    fn list(&mut self, elements: &[Element]) -> Typed {
        let mut joined = None;
        let mut items = Vec::with_capacity(elements.len());
        let mut first = None;
        let mut types = Vec::with_capacity(elements.len());
        for each in elements {
            let (item, of) = self.element(each);
            items.push(item);
            types.push(of.clone());
            joined = self.join(joined, &of);
            self.note_alike(each.node.at, &mut first, of);
        }
        let of = joined.unwrap_or_else(|| self.found.fresh());
        self.elements = types;
        (Ir::List(items), Type::list(of))
    }

    fn map(&mut self, entries: &[(Node, Element)]) -> Typed {
        let (mut keys, mut values) = (None, None);
        let (mut first_key, mut first_value) = (None, None);
        let mut items = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (key_ir, key_type) = self.check(key);
            let (item, value_type) = self.element(value);
            keys = self.join(keys, &key_type);
            values = self.join(values, &value_type);
            self.note_alike(key.at, &mut first_key, key_type);
            self.note_alike(value.node.at, &mut first_value, value_type);
            items.push((key_ir, item));
        }
        let key = keys.unwrap_or_else(|| self.found.fresh());
        let key = self.key(key);
        let value = values.unwrap_or_else(|| self.found.fresh());
        (Ir::Map(items), Type::map(key, value))
    }

    /// The type of a literal's keys. What can be no key fails when it is worked
    /// out; its type would double, with that of the values, at every turn of
    /// `.map(x, {x: x})`, so it is left open.
    fn key(&mut self, of: Type) -> Type {
        match self.found.look(&of) {
            Type::List(_) | Type::Map(..) | Type::Optional(_) | Type::Type(_) => Type::Dyn,
            Type::Unknown(_) => {
                self.fits(&Type::Dyn, &of);
                Type::Dyn
            }
            other => other,
        }
    }

    fn note_alike(&mut self, at: u32, first: &mut Option<Type>, of: Type) {
        match first {
            None => *first = Some(of),
            Some(first) if self.lenient == 0 => self.alike.push((at, first.clone(), of)),
            Some(_) => {}
        }
    }

    /// The elements' type with one more: dyn if they differ, which
    /// `compare_literals` refuses but in the arguments of `format`.
    fn join(&mut self, before: Option<Type>, next: &Type) -> Option<Type> {
        self.found.join(before, next).or(Some(Type::Dyn))
    }

    /// The overloads of a name, if it is declared here.
    pub(super) fn declared(&self, name: &str) -> Option<&'static [super::declaration::Overload]> {
        if name == "jsonpatch.escapeKey" && !self.declared.patch_types {
            return None;
        }
        library().get(name).map(Vec::as_slice)
    }
}

fn literal_type(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Uint(_) => Type::Uint,
        Value::Double(_) => Type::Double,
        Value::String(_) => Type::String,
        Value::Bytes(_) => Type::Bytes,
        _ => Type::Dyn,
    }
}

/// A constant string argument.
pub(super) fn constant_string(ir: &Ir) -> Option<Arc<str>> {
    match ir {
        Ir::Constant(Value::String(text)) => Some(text.clone()),
        _ => None,
    }
}
