//! Calls: macros first, then dotted function names, then members.

use super::ast::{Kind, Node};
use super::check::{Checker, Typed, constant_string};
use super::declaration::{Native, Overload, Scope};
use super::ir::{Ir, Loop, LoopKind, Mode, Work};
use super::library::Pattern;
use super::types::Type;
use super::{Budget, Names, RunError, Value};

/// Questions an expression may put to the authorizer.
const CHECKS: usize = 2;
/// Units of all literal patterns of an expression.
const PATTERN_UNITS: u64 = 300_000;

impl Checker<'_> {
    pub(super) fn call(
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
            && let Some(overloads) = self.declared(&dotted)
        {
            return self.resolve(at, &dotted, overloads, None, arguments);
        }
        match self.declared(name) {
            Some(overloads) => self.resolve(at, name, overloads, target, arguments),
            None => {
                if let Some(target) = target {
                    self.check(target);
                }
                self.refuse(
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
        self.lenient += usize::from(lenient);
        let (irs, types): (Vec<Ir>, Vec<Type>) = target
            .into_iter()
            .chain(arguments)
            .map(|node| self.check(node))
            .unzip();
        self.lenient -= usize::from(lenient);
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
                .map(|of| self.found.fresh_copy(of, &mut names))
                .collect();
            let returns = self.found.fresh_copy(&overload.result, &mut names);
            if !self.found.fits_all(&wanted, &types) {
                continue;
            }
            let returns = self.found.resolve(&returns, false);
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
            return self.refuse(
                at,
                format!("found no matching overload for '{name}' applied to '{shown}'"),
            );
        };
        self.validate(name, target, arguments, &irs);
        let first = fitting.first().map_or(0, |overload| overload.row);
        let work = match fitting.first() {
            Some(only) if fitting.iter().all(|overload| overload.row == first) => {
                Work::One(only.native)
            }
            _ => Work::Of(fitting),
        };
        if target.is_none()
            && CONVERSIONS.contains(&name)
            && let ([Ir::Constant(value)], Work::One(native)) = (irs.as_slice(), &work)
        {
            return match constant(*native, value) {
                Ok(value) => (Ir::Constant(value), result),
                Err(error) => self.refuse(
                    arguments.first().map_or(at, |node| node.at),
                    error.to_string(),
                ),
            };
        }
        (special(name, irs, work), result)
    }

    /// Literals that are known to be wrong: patterns, times, spans; and too
    /// many questions to the authorizer.
    fn validate(&mut self, name: &str, target: Option<&Node>, arguments: &[Node], irs: &[Ir]) {
        let member = target.is_some();
        let Some(last) = arguments.first() else {
            return;
        };
        if let ("format", Some(Kind::Literal(Value::String(pattern))), Kind::List(_)) =
            (name, target.map(|node| &node.kind), &last.kind)
        {
            let types: Vec<Type> = self
                .elements
                .iter()
                .map(|of| self.found.resolve(of, true))
                .collect();
            if let Err(reason) = super::library::check_format(pattern, &types) {
                self.refuse(last.at, reason);
            }
            return;
        }
        if name == "check" && member {
            self.checks += 1;
            if self.checks > CHECKS {
                self.refuse(
                    last.at,
                    format!("more than {CHECKS} authorizer checks in an expression"),
                );
            }
            return;
        }
        let pattern = matches!((name, member), ("matches" | "find" | "findAll", true));
        let text = irs.get(usize::from(member)).and_then(constant_string);
        let text = match (name, member) {
            ("matches", false) => irs.get(1).and_then(constant_string),
            _ => text,
        };
        let Some(text) = text else { return };
        let wrong = match name {
            _ if pattern || name == "matches" => self.pattern(&text).err(),
            _ => None,
        };
        if let Some(reason) = wrong {
            self.refuse(last.at, format!("invalid {name} argument: {reason}"));
        }
    }

    /// Compiles a literal pattern; all of an expression's together are bounded.
    fn pattern(&mut self, text: &str) -> Result<(), String> {
        if self.pattern_units > PATTERN_UNITS {
            return Err("the expression's patterns together are too large".to_owned());
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
                Kind::Select {
                    operand,
                    field: _,
                    optional: false,
                } if matches!(&operand.kind, Kind::Name(name) if name == "variables") => {
                    self.check(argument);
                    (Ir::Constant(Value::Bool(true)), Type::Bool)
                }
                Kind::Select {
                    operand,
                    field,
                    optional: false,
                } => self.select_from(argument.at, operand, field, Mode::Test),
                _ => self.refuse(
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
                Kind::Name(name) if !names.contains(name) => names.push(name.clone()),
                _ => {
                    return Some(self.refuse(
                        argument.at,
                        "argument must be a simple name, each another one",
                    ));
                }
            }
        }
        let (range, of) = self.check(target);
        let of = self.found.resolve(&of, false);
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
                self.refuse(target.at, reason);
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
        let wanted = Type::map(self.found.fresh(), self.found.fresh());
        if self.fits(&of, &wanted) {
            return self.found.resolve(&wanted, false);
        }
        let shown = self.show(&of);
        self.refuse(at, format!("transformMapEntry makes maps, not '{shown}'"));
        wanted
    }

    fn sorted(&mut self, at: u32, key_at: u32, range: Type, key: &Type) -> Type {
        let wanted = Type::list(self.found.fresh());
        if !self.fits(&range, &wanted) {
            let shown = self.show(&range);
            self.refuse(at, format!("sortBy sorts lists, not '{shown}'"));
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
            self.refuse(key_at, format!("sortBy cannot order by '{shown}'"));
        }
        self.found.resolve(&wanted, false)
    }

    fn optional_map(&mut self, at: u32, target: &Node, arguments: &[Node], flat: bool) -> Typed {
        let [variable, body] = arguments else {
            return self.refuse(at, "optMap takes a name and an expression");
        };
        let Kind::Name(name) = &variable.kind else {
            return self.refuse(variable.at, "argument must be a simple name");
        };
        let (range, of) = self.check(target);
        let inside = self.found.fresh();
        if !self.fits(&of, &Type::optional(inside.clone())) {
            let shown = self.show(&of);
            self.refuse(
                at,
                format!("found no matching overload for 'hasValue' applied to '{shown}.()'"),
            );
        }
        let inside = match self.found.look(&of) {
            Type::Dyn => Type::Dyn,
            _ => self.found.resolve(&inside, false),
        };
        self.locals.push((name.clone(), inside));
        let (body_ir, returns) = self.check(body);
        self.locals.pop();
        let result = if flat {
            returns.clone()
        } else {
            Type::optional(returns.clone())
        };
        let wanted = Type::optional(self.found.fresh());
        if flat && !self.fits(&returns, &wanted) {
            let shown = self.show(&returns);
            self.refuse(
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

/// The conversions of a constant that are worked out at once, as on the server.
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

/// Nothing has a name.
struct Nameless;

impl Names for Nameless {
    fn get(&self, _: &str, _: &mut Budget) -> Option<Result<Value, RunError>> {
        None
    }
}

fn constant(native: Native, value: &Value) -> Result<Value, RunError> {
    let mut budget = Budget::default();
    let mut scope = Scope {
        budget: &mut budget,
        names: &Nameless,
    };
    native(&mut scope, std::slice::from_ref(value))
}

/// Calls that do not work out all their arguments.
fn special(name: &str, irs: Vec<Ir>, work: Work) -> Ir {
    let irs = match name {
        "_?_:_" => match <[Ir; 3]>::try_from(irs) {
            Ok(three) => return Ir::Choice(Box::new(three)),
            Err(irs) => irs,
        },
        "or" | "orValue" => match <[Ir; 2]>::try_from(irs) {
            Ok(both) => {
                return Ir::Otherwise {
                    both: Box::new(both),
                    unwrap: name == "orValue",
                };
            }
            Err(irs) => irs,
        },
        _ => irs,
    };
    Ir::Call {
        work,
        arguments: irs,
    }
}
