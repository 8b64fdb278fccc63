//! Checks calls. A call is looked up as a macro first, then as a function with a dotted name, then
//! as a function or member.

use super::{Checker, Typed, constant_string};
use crate::budget::Budget;
use crate::error::{EvaluationError, Invalid};
use crate::ir::{Dispatch, Ir, Loop, LoopKind, SelectMode};
use crate::library::check_format;
use crate::library::declaration::{CallContext, Overload};
use crate::pattern::Pattern;
use crate::syntax::ast::{Node, NodeKind};
use crate::types::Type;
use crate::value::Value;

/// The most authorizer checks that an expression may contain.
const MAX_AUTHORIZER_CHECKS: usize = 2;
/// The cost units of an expression's literal patterns beyond which no further one is compiled.
const MAX_PATTERN_UNITS: u64 = 300_000;

impl Checker<'_> {
    pub(crate) fn call(
        &mut self,
        at: u32,
        target: Option<&Node>,
        name: &str,
        arguments: &[Node],
    ) -> Typed {
        if let Some(found) = self.macro_call(at, target, name, arguments) {
            return found;
        }
        let dotted = target
            .and_then(Node::qualified)
            .map(|prefix| format!("{prefix}.{name}"));
        if let Some(dotted) = dotted
            && let Some(overloads) = self.overloads(&dotted)
        {
            return self.resolve(at, &dotted, overloads, None, arguments);
        }
        match self.overloads(name) {
            Some(overloads) => self.resolve(at, name, overloads, target, arguments),
            None => {
                if let Some(target) = target {
                    self.check(target);
                }
                self.issue(
                    at,
                    format!("undeclared reference to '{name}': there is no such function"),
                )
            }
        }
    }

    fn resolve(
        &mut self,
        at: u32,
        name: &str,
        overloads: &'static [Overload],
        target: Option<&Node>,
        arguments: &[Node],
    ) -> Typed {
        let lenient = name == "format" && target.is_some();
        self.format_depth += usize::from(lenient);
        let (irs, types): (Vec<Ir>, Vec<Type>) = target
            .into_iter()
            .chain(arguments)
            .map(|node| self.check(node))
            .unzip();
        self.format_depth -= usize::from(lenient);
        let mut result: Option<Type> = None;
        let mut fitting: Vec<&'static Overload> = Vec::new();
        for overload in overloads {
            if overload.member != target.is_some() || overload.parameters.len() != types.len() {
                continue;
            }
            let mut names = std::collections::HashMap::new();
            let wanted: Vec<Type> = overload
                .parameters
                .iter()
                .map(|of| self.inference.fresh_copy(of, &mut names))
                .collect();
            let returns = self.inference.fresh_copy(&overload.result, &mut names);
            if !self.inference.all_assignable(&wanted, &types) {
                continue;
            }
            let returns = self.inference.resolve(&returns, false);
            result = Some(match result {
                None => returns,
                Some(before) if before == Type::Dyn || before == returns => before,
                Some(_) => Type::Dyn,
            });
            fitting.push(overload);
        }
        let Some(result) = result else {
            let shown: Vec<String> = types.iter().map(|of| self.show(of)).collect();
            let shown = match (target, shown.split_first()) {
                (Some(_), Some((first, rest))) => format!("{first}.({})", rest.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            return self.issue(
                at,
                format!("found no matching overload for '{name}' applied to '{shown}'"),
            );
        };
        self.validate(name, target, arguments, &irs);
        let dispatch = match fitting.first() {
            Some(first) if fitting.iter().all(|other| other.module == first.module) => {
                Dispatch::Static(first)
            }
            _ => Dispatch::Dynamic(fitting),
        };
        if target.is_none()
            && CONVERSIONS.contains(&name)
            && let ([Ir::Constant(value)], Dispatch::Static(function)) = (irs.as_slice(), &dispatch)
        {
            return match constant(function, value) {
                Ok(value) => (Ir::Constant(value), result),
                Err(error) => self.issue(
                    arguments.first().map_or(at, |node| node.at),
                    error.to_string(),
                ),
            };
        }
        (special(name, irs, dispatch), result)
    }

    /// Refuses invalid literal patterns and formats, and too many authorizer checks.
    fn validate(&mut self, name: &str, target: Option<&Node>, arguments: &[Node], irs: &[Ir]) {
        let member = target.is_some();
        let Some(last) = arguments.first() else {
            return;
        };
        if let ("format", Some(NodeKind::Literal(Value::String(pattern))), NodeKind::List(_)) =
            (name, target.map(|node| &node.kind), &last.kind)
        {
            let types: Vec<Type> = self
                .elements
                .iter()
                .map(|of| self.inference.resolve(of, true))
                .collect();
            if let Err(reason) = check_format(pattern, &types) {
                self.issue(last.at, reason.0);
            }
            return;
        }
        if name == "check" && member {
            self.authorizer_checks += 1;
            if self.authorizer_checks > MAX_AUTHORIZER_CHECKS {
                self.issue(
                    last.at,
                    format!("more than {MAX_AUTHORIZER_CHECKS} authorizer checks in an expression"),
                );
            }
            return;
        }
        if !matches!((name, member), ("matches", _) | ("find" | "findAll", true)) {
            return;
        }
        if let Some(text) = irs.get(1).and_then(constant_string)
            && let Err(reason) = self.pattern(&text)
        {
            self.issue(last.at, format!("invalid {name} argument: {reason}"));
        }
    }

    /// Compiles a literal pattern to check it. Fails also if the expression's earlier patterns were
    /// too large together.
    fn pattern(&mut self, text: &str) -> Result<(), Invalid> {
        if self.pattern_units > MAX_PATTERN_UNITS {
            return Err("the expression's patterns together are too large".into());
        }
        let pattern = Pattern::new(text);
        self.pattern_units += Pattern::units(pattern.as_ref().ok());
        pattern.map(drop)
    }

    fn macro_call(
        &mut self,
        at: u32,
        target: Option<&Node>,
        name: &str,
        arguments: &[Node],
    ) -> Option<Typed> {
        let Some(target) = target else {
            let ("has", [argument]) = (name, arguments) else {
                return None;
            };
            return Some(match &argument.kind {
                NodeKind::Select {
                    operand,
                    field: _,
                    optional: false,
                } if matches!(&operand.kind, NodeKind::Name(name) if name == "variables") => {
                    self.check(argument);
                    (Ir::Constant(Value::Bool(true)), Type::Bool)
                }
                NodeKind::Select {
                    operand,
                    field,
                    optional: false,
                } => self.select_from(argument.at, operand, field, SelectMode::Test),
                _ => self.issue(
                    argument.at,
                    "invalid argument to has() macro: it takes a field, as in has(a.b)",
                ),
            });
        };
        let kind = |kind, two, filter| Some((kind, two, filter));
        let (kind, two, filter) = match (name, arguments.len()) {
            ("all", 2) => kind(LoopKind::All, false, false),
            ("exists", 2) => kind(LoopKind::Exists, false, false),
            ("exists_one", 2) => kind(LoopKind::ExistsOne, false, false),
            ("filter", 2) => kind(LoopKind::Filter, false, false),
            ("map", 2) => kind(LoopKind::List, false, false),
            ("map", 3) => kind(LoopKind::List, false, true),
            ("sortBy", 2) => kind(LoopKind::Sort, false, false),
            ("all", 3) => kind(LoopKind::All, true, false),
            ("exists", 3) => kind(LoopKind::Exists, true, false),
            ("exists_one" | "existsOne", 3) => kind(LoopKind::ExistsOne, true, false),
            ("transformList", 3) => kind(LoopKind::List, true, false),
            ("transformList", 4) => kind(LoopKind::List, true, true),
            ("transformMap", 3) => kind(LoopKind::Map, true, false),
            ("transformMap", 4) => kind(LoopKind::Map, true, true),
            ("transformMapEntry", 3) => kind(LoopKind::Entries, true, false),
            ("transformMapEntry", 4) => kind(LoopKind::Entries, true, true),
            ("optMap", 2) => return Some(self.optional_map(at, target, arguments, false)),
            ("optFlatMap", 2) => return Some(self.optional_map(at, target, arguments, true)),
            _ => None,
        }?;
        let mut names = Vec::new();
        for argument in &arguments[..1 + usize::from(two)] {
            match &argument.kind {
                NodeKind::Name(name) if !names.contains(name) => names.push(name.clone()),
                _ => {
                    return Some(self.issue(
                        argument.at,
                        "argument must be a simple name, each another one",
                    ));
                }
            }
        }
        let (range, of) = self.check(target);
        let of = self.inference.resolve(&of, false);
        let (key, value) = match &of {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Unknown(_) => {
                self.fits(&Type::Dyn, &of);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let shown = self.show(&of);
                let reason = format!(
                    "expression of type '{shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issue(target.at, reason);
                (Type::Dyn, Type::Dyn)
            }
        };
        let depth = self.locals.len();
        for (name, of) in names.into_iter().zip([key.clone(), value]) {
            self.locals.push((name, of));
        }
        let rest = &arguments[1 + usize::from(two)..];
        let checked_filter = if filter {
            rest.first().map(|node| self.check_bool(node))
        } else {
            None
        };
        let body = rest.last()?;
        let typed = match kind {
            LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne | LoopKind::Filter => {
                (self.check_bool(body), Type::Bool)
            }
            _ => self.check(body),
        };
        self.locals.truncate(depth);
        let result = match kind {
            LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne => Type::Bool,
            LoopKind::Filter => Type::list(key),
            LoopKind::List => Type::list(typed.1),
            LoopKind::Map => Type::map(key, typed.1),
            LoopKind::Entries => self.entries(body.at, typed.1),
            LoopKind::Sort => self.sorted(target.at, body.at, of, &typed.1),
        };
        let looped = Loop {
            kind,
            range,
            two,
            filter: checked_filter,
            body: typed.0,
        };
        Some((Ir::Loop(Box::new(looped)), result))
    }

    fn entries(&mut self, at: u32, of: Type) -> Type {
        let wanted = Type::map(self.inference.fresh(), self.inference.fresh());
        if self.fits(&of, &wanted) {
            return self.inference.resolve(&wanted, false);
        }
        let shown = self.show(&of);
        self.issue(at, format!("transformMapEntry makes maps, not '{shown}'"));
        wanted
    }

    fn sorted(&mut self, at: u32, key_at: u32, range: Type, key: &Type) -> Type {
        let wanted = Type::list(self.inference.fresh());
        if !self.fits(&range, &wanted) {
            let shown = self.show(&range);
            self.issue(at, format!("sortBy sorts lists, not '{shown}'"));
        }
        let orders = [
            Type::Int,
            Type::Uint,
            Type::Double,
            Type::Bool,
            Type::Duration,
            Type::Timestamp,
            Type::String,
            Type::Bytes,
        ];
        if !orders.iter().any(|order| self.fits(key, order)) {
            let shown = self.show(key);
            self.issue(key_at, format!("sortBy cannot order by '{shown}'"));
        }
        self.inference.resolve(&wanted, false)
    }

    fn optional_map(&mut self, at: u32, target: &Node, arguments: &[Node], flat: bool) -> Typed {
        let [variable, body] = arguments else {
            return self.issue(at, "optMap takes a name and an expression");
        };
        let NodeKind::Name(name) = &variable.kind else {
            return self.issue(variable.at, "argument must be a simple name");
        };
        let (range, of) = self.check(target);
        let inside = self.inference.fresh();
        if !self.fits(&of, &Type::optional(inside.clone())) {
            let shown = self.show(&of);
            self.issue(
                at,
                format!("found no matching overload for 'hasValue' applied to '{shown}.()'"),
            );
        }
        let inside = match self.inference.head(&of) {
            Type::Dyn => Type::Dyn,
            _ => self.inference.resolve(&inside, false),
        };
        self.locals.push((name.clone(), inside));
        let (body_ir, returns) = self.check(body);
        self.locals.pop();
        let result = if flat {
            returns.clone()
        } else {
            Type::optional(returns.clone())
        };
        let wanted = Type::optional(self.inference.fresh());
        if flat && !self.fits(&returns, &wanted) {
            let shown = self.show(&returns);
            self.issue(
                body.at,
                format!("optFlatMap takes an expression that is optional, not '{shown}'"),
            );
        }
        (
            Ir::OptionalMap {
                both: Box::new([range, body_ir]),
                flat,
            },
            result,
        )
    }
}

/// The conversions that are evaluated at compile time for a constant, as in Kubernetes.
const CONVERSIONS: [&str; 9] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "uint",
];

fn constant(function: &Overload, value: &Value) -> Result<Value, EvaluationError> {
    let mut budget = Budget::default();
    let mut context = CallContext {
        budget: &mut budget,
        resolver: &&[][..],
    };
    function.call(&mut context, std::slice::from_ref(value))
}

/// Builds the node of a call. Calls that do not evaluate all their arguments have nodes of their
/// own.
fn special(name: &str, irs: Vec<Ir>, dispatch: Dispatch) -> Ir {
    let irs = match name {
        "_?_:_" => match <[Ir; 3]>::try_from(irs) {
            Ok(three) => return Ir::Choice(Box::new(three)),
            Err(irs) => irs,
        },
        "or" | "orValue" => match <[Ir; 2]>::try_from(irs) {
            Ok(both) => {
                return Ir::OrElse {
                    both: Box::new(both),
                    unwrap: name == "orValue",
                };
            }
            Err(irs) => irs,
        },
        _ => irs,
    };
    Ir::Call {
        dispatch,
        arguments: irs,
    }
}
