//! The type checker: turns a syntax tree into a checked expression ([`Ir`]) and reports every issue
//! it finds.

mod calls;
pub(crate) mod depth;
mod inference;
mod objects;

use std::sync::Arc;

use crate::declarations::Declarations;
use crate::ir::{Ir, Item, SelectMode};
use crate::library::declaration::Overload;
use crate::library::library;
use crate::syntax::ast::{Element, Node, NodeKind};
use crate::types::Type;
use crate::value::Value;
use inference::Inference;

pub(crate) struct Checker<'a> {
    pub declarations: &'a Declarations,
    pub inference: Inference,
    /// The local variables in scope, the innermost last. An index is the variable's slot on the
    /// evaluator's stack.
    pub locals: Vec<(String, Type)>,
    /// The issues found so far, as byte offsets and messages.
    pub issues: Vec<(u32, String)>,
    pub authorizer_checks: usize,
    /// Pairs of element types of a literal that must be equal once all types are inferred, with the
    /// byte offset of the second element.
    pub same_types: Vec<(u32, Type, Type)>,
    /// The number of enclosing calls of `format`, whose list argument may hold several types.
    pub format_depth: usize,
    /// The types of the elements of the list literal checked last.
    pub elements: Vec<Type>,
    pub pattern_units: u64,
}

pub(crate) type Typed = (Ir, Type);

impl<'a> Checker<'a> {
    pub(crate) fn new(declarations: &'a Declarations) -> Self {
        Self {
            declarations,
            inference: Inference::default(),
            locals: Vec::new(),
            issues: Vec::new(),
            authorizer_checks: 0,
            same_types: Vec::new(),
            format_depth: 0,
            elements: Vec::new(),
            pattern_units: 0,
        }
    }

    /// Records an issue and returns a placeholder, so that checking goes on and finds all issues.
    pub(crate) fn issue(&mut self, at: u32, reason: impl Into<String>) -> Typed {
        self.issues.push((at, reason.into()));
        (Ir::Constant(Value::Null), Type::Dyn)
    }

    /// Returns the type as text, with the inferred types filled in.
    pub(crate) fn show(&self, of: &Type) -> String {
        self.inference.resolve(of, true).to_string()
    }

    /// Returns whether a value of type `given` is assignable to `wanted`. If it is not, the types
    /// inferred on the way are discarded.
    pub(crate) fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        self.inference
            .all_assignable(std::slice::from_ref(wanted), std::slice::from_ref(given))
    }

    /// Refuses literals whose elements have different types. `dyn` differs from every other type.
    pub(crate) fn compare_literals(&mut self) {
        for (at, first, other) in std::mem::take(&mut self.same_types) {
            let (first, other) = (
                self.inference.resolve(&first, true),
                self.inference.resolve(&other, true),
            );
            if first != other {
                let reason = format!(
                    "expected type '{first}' but found '{other}': a literal's elements are of one type"
                );
                self.issues.push((at, reason));
            }
        }
    }

    pub(crate) fn check(&mut self, node: &Node) -> Typed {
        match &node.kind {
            NodeKind::Literal(value) => (Ir::Constant(value.clone()), literal_type(value)),
            NodeKind::Name(name) => self.name(node.at, name),
            NodeKind::Select {
                operand,
                field,
                optional,
            } => self.select(node, operand, field, *optional),
            NodeKind::Call {
                target,
                name,
                arguments,
            } => self.call(node.at, target.as_deref(), name, arguments),
            NodeKind::Logic { any, terms } => {
                let terms = terms.iter().map(|term| self.check_bool(term)).collect();
                (Ir::Logic { any: *any, terms }, Type::Bool)
            }
            NodeKind::List(elements) => self.list(elements),
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Struct { name, fields } => self.object(node.at, name, fields),
        }
    }

    pub(crate) fn check_bool(&mut self, node: &Node) -> Ir {
        let (ir, of) = self.check(node);
        if !self.fits(&of, &Type::Bool) {
            let shown = self.show(&of);
            self.issue(node.at, format!("expected type 'bool' but found '{shown}'"));
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
        if let Some(declared) = self.declared_name(name) {
            return declared;
        }
        match name {
            "variables" => self.issue(at, "variables: name one, as in variables.name"),
            _ => self.issue(at, format!("undeclared reference to '{name}'")),
        }
    }

    fn declared_name(&self, name: &str) -> Option<Typed> {
        if let Some(ty) = self.declarations.type_of(name) {
            return Some((Ir::Global(name.into()), ty.clone()));
        }
        let constant = Ir::Constant(Value::Type(name.into()));
        Type::named(name).map(|ty| (constant, Type::Type(ty.into())))
    }

    /// Checks a node that spells the dotted name of a variable or type, such as `variables.x` or
    /// `net.IP`.
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
            let declared = self.declarations.variable(variable);
            return Some(match declared {
                Some(program) => (Ir::Global(name.into()), program.result_type().clone()),
                None => self.issue(
                    node.at,
                    format!("undefined field '{variable}': no variable before this has that name"),
                ),
            });
        }
        self.declared_name(&name)
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, optional: bool) -> Typed {
        if !optional && let Some(found) = self.dotted(node) {
            return found;
        }
        let mode = if optional {
            SelectMode::Optional
        } else {
            SelectMode::Plain
        };
        self.select_from(node.at, operand, field, mode)
    }

    /// Checks `operand.field`, `operand.?field` or `has(operand.field)`.
    pub(crate) fn select_from(
        &mut self,
        at: u32,
        operand: &Node,
        field: &str,
        mode: SelectMode,
    ) -> Typed {
        let (ir, of) = self.check(operand);
        let of = self.inference.resolve(&of, false);
        let (inside, was_optional) = match &of {
            Type::Optional(inner) => (self.inference.head(inner), true),
            other => (other.clone(), false),
        };
        let result = match &inside {
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn | Type::Object { .. } => Type::Dyn,
            Type::Unknown(_) => {
                self.fits(&Type::Dyn, &inside);
                Type::Dyn
            }
            Type::Record(name) => match self.record_field(name, field) {
                Some(of) => of,
                None => return self.issue(at, format!("undefined field '{field}' of '{name}'")),
            },
            other => {
                let shown = self.show(other);
                return self.issue(
                    at,
                    format!("type '{shown}' does not support field selection"),
                );
            }
        };
        let result = match mode {
            SelectMode::Test => Type::Bool,
            SelectMode::Optional => Type::optional(result),
            SelectMode::Plain if was_optional => Type::optional(result),
            SelectMode::Plain => result,
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

    /// Checks an element of a literal and returns its type; for `?x` the type inside the optional.
    pub(crate) fn element(&mut self, element: &Element) -> (Item, Type) {
        let (ir, mut inside) = self.check(&element.node);
        let optional = element.optional;
        if optional {
            inside = match self.inference.head(&inside) {
                Type::Optional(inner) => (*inner).clone(),
                Type::Dyn => Type::Dyn,
                other => {
                    let shown = self.show(&other);
                    self.issue(
                        element.node.at,
                        format!("expected an optional after '?' but found '{shown}'"),
                    );
                    Type::Dyn
                }
            };
        }
        (Item { ir, optional }, inside)
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
            self.note_type(each.node.at, &mut first, of);
        }
        let of = joined.unwrap_or_else(|| self.inference.fresh());
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
            self.note_type(key.at, &mut first_key, key_type);
            self.note_type(value.node.at, &mut first_value, value_type);
            items.push((key_ir, item));
        }
        let key = keys.unwrap_or_else(|| self.inference.fresh());
        let key = self.key(key);
        let value = values.unwrap_or_else(|| self.inference.fresh());
        (Ir::Map(items), Type::map(key, value))
    }

    /// Returns the type of a literal's keys. A type that cannot be a key becomes `dyn`, because it
    /// would double in every `.map(x, {x: x})`; such a key fails at evaluation.
    fn key(&mut self, of: Type) -> Type {
        match self.inference.head(&of) {
            Type::List(_) | Type::Map(..) | Type::Optional(_) | Type::Type(_) => Type::Dyn,
            Type::Unknown(_) => {
                self.fits(&Type::Dyn, &of);
                Type::Dyn
            }
            other => other,
        }
    }

    fn note_type(&mut self, at: u32, first: &mut Option<Type>, of: Type) {
        match first {
            None => *first = Some(of),
            Some(first) if self.format_depth == 0 => self.same_types.push((at, first.clone(), of)),
            Some(_) => {}
        }
    }

    /// Returns the type of a literal's elements together with one more; `dyn` if the types differ,
    /// which `compare_literals` refuses except in the arguments of `format`.
    fn join(&mut self, before: Option<Type>, next: &Type) -> Option<Type> {
        self.inference.join(before, next).or(Some(Type::Dyn))
    }

    fn record_field(&self, record: &str, field: &str) -> Option<Type> {
        match (record, field) {
            ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
            ("JSONPatch", "value") => Some(Type::Dyn),
            _ => (self.declarations.record_fields?)(record, field),
        }
    }

    pub(crate) fn overloads(&self, name: &str) -> Option<&'static [Overload]> {
        if name == "jsonpatch.escapeKey" && !self.declarations.patch_types {
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

pub(crate) fn constant_string(ir: &Ir) -> Option<Arc<str>> {
    match ir {
        Ir::Constant(Value::String(text)) => Some(text.clone()),
        _ => None,
    }
}
