//! Builds a syntax tree of bounded depth from tokens, by precedence climbing.

use super::ast::{Element, MAX_DEPTH, Node, NodeKind};
use super::lexer;
use super::token::{Token, TokenKind};
use crate::value::Value;

/// A byte offset and a message.
type Issue = (u32, String);

/// The reserved words, which may not name a variable or a function.
const RESERVED: &str = "as break const continue else for function if import let loop \
    package namespace return var void while";

/// The length of the longest source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 16 << 10;

/// Parses an expression. Fails with the first syntax error, or if the source is too long or too
/// deep.
pub(crate) fn parse(source: &str) -> Result<Node, Issue> {
    if source.len() > MAX_SOURCE_BYTES {
        let reason = format!(
            "the expression has {} bytes, more than {MAX_SOURCE_BYTES}",
            source.len()
        );
        return Err((0, reason));
    }
    let mut parser = Parser {
        tokens: lexer::tokens(source)?,
        next: 0,
        nested: 0,
    };
    let node = parser.expression()?;
    match parser.peek() {
        TokenKind::End => Ok(node),
        _ => Err(parser.unexpected("the end of the expression")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    nested: u16,
}

fn too_deep(at: u32) -> Issue {
    (
        at,
        format!("the expression is nested deeper than {MAX_DEPTH} levels"),
    )
}

/// Creates a node. Fails if it is too deep.
fn node(at: u32, kind: NodeKind) -> Result<Node, Issue> {
    let depth = kind.depth() + 1;
    if depth > MAX_DEPTH {
        Err(too_deep(at))
    } else {
        Ok(Node { at, depth, kind })
    }
}

fn call(at: u32, name: &str, arguments: Vec<Node>) -> Result<Node, Issue> {
    member_call(at, None, name.to_owned(), arguments)
}

fn member_call(
    at: u32,
    target: Option<Node>,
    name: String,
    arguments: Vec<Node>,
) -> Result<Node, Issue> {
    let target = target.map(Box::new);
    node(
        at,
        NodeKind::Call {
            target,
            name,
            arguments,
        },
    )
}

impl Parser {
    fn peek(&self) -> &TokenKind {
        self.tokens
            .get(self.next)
            .map_or(&TokenKind::End, |token| &token.kind)
    }

    fn at(&self) -> u32 {
        self.tokens
            .get(self.next)
            .or(self.tokens.last())
            .map_or(0, |token| token.at)
    }

    fn take(&mut self) -> TokenKind {
        let kind = self.peek().clone();
        self.next += 1;
        kind
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), TokenKind::Symbol(found) if *found == symbol);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Issue> {
        if self.accept(symbol) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("'{symbol}'")))
        }
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let found = match self.peek() {
            TokenKind::End => "the end".to_owned(),
            TokenKind::Symbol(symbol) => format!("'{symbol}'"),
            TokenKind::Name(name) => format!("'{name}'"),
            _ => "a literal".to_owned(),
        };
        (
            self.at(),
            format!("Syntax error: found {found}, expected {wanted}"),
        )
    }

    fn expression(&mut self) -> Result<Node, Issue> {
        self.nested += 1;
        if self.nested > MAX_DEPTH {
            return Err(too_deep(self.at()));
        }
        let condition = self.logic(true)?;
        let at = self.at();
        let found = if self.accept("?") {
            let then = self.logic(true)?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            call(at, "_?_:_", vec![condition, then, otherwise])?
        } else {
            condition
        };
        self.nested -= 1;
        Ok(found)
    }

    fn logic(&mut self, any: bool) -> Result<Node, Issue> {
        let symbol = if any { "||" } else { "&&" };
        let term = |parser: &mut Self| {
            if any {
                parser.logic(false)
            } else {
                parser.binary(0)
            }
        };
        let mut terms = vec![term(self)?];
        let at = self.at();
        while self.accept(symbol) {
            terms.push(term(self)?);
        }
        match (terms.len(), terms.pop()) {
            (1, Some(only)) => Ok(only),
            (_, last) => {
                terms.extend(last);
                node(at, NodeKind::Logic { any, terms })
            }
        }
    }

    /// Returns the operator at the current token and its precedence, if that is at least `level`: 0
    /// for relations, 1 for sums, 2 for products.
    fn operator(&self, level: u8) -> Option<(&'static str, u8)> {
        let (name, binds) = match self.peek() {
            TokenKind::Name(name) if name == "in" => ("@in", 0),
            TokenKind::Symbol(symbol) => match *symbol {
                "==" => ("_==_", 0),
                "!=" => ("_!=_", 0),
                "<" => ("_<_", 0),
                "<=" => ("_<=_", 0),
                ">" => ("_>_", 0),
                ">=" => ("_>=_", 0),
                "+" => ("_+_", 1),
                "-" => ("_-_", 1),
                "*" => ("_*_", 2),
                "/" => ("_/_", 2),
                "%" => ("_%_", 2),
                _ => return None,
            },
            _ => return None,
        };
        (binds >= level).then_some((name, binds))
    }

    fn binary(&mut self, level: u8) -> Result<Node, Issue> {
        let mut left = self.unary()?;
        while let Some((name, binds)) = self.operator(level) {
            let at = self.at();
            self.next += 1;
            let right = self.binary(binds + 1)?;
            left = call(at, name, vec![left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, Issue> {
        let at = self.at();
        let (symbol, name) = match self.peek() {
            TokenKind::Symbol("!") => ("!", "!_"),
            TokenKind::Symbol("-") => ("-", "-_"),
            _ => return self.member(false),
        };
        let mut count = 0_usize;
        while self.accept(symbol) {
            count += 1;
        }
        let number = matches!(self.peek(), TokenKind::Int(_) | TokenKind::Double(_));
        let signed = symbol == "-" && number;
        let operand = self.member(signed)?;
        // Pairs of the operator cancel out, as in Kubernetes' parser.
        if (count - usize::from(signed)).is_multiple_of(2) {
            Ok(operand)
        } else {
            call(at, name, vec![operand])
        }
    }

    fn member(&mut self, negative: bool) -> Result<Node, Issue> {
        let start = self.at();
        let mut operand = self.primary(negative)?;
        loop {
            let at = self.at();
            if self.accept(".") {
                let optional = self.accept("?");
                let field = self.field()?;
                operand = if !optional && self.accept("(") {
                    member_call(at, Some(operand), field, self.arguments()?)?
                } else {
                    let operand = Box::new(operand);
                    node(
                        at,
                        NodeKind::Select {
                            operand,
                            field,
                            optional,
                        },
                    )?
                };
            } else if self.accept("[") {
                let name = if self.accept("?") { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                operand = call(at, name, vec![operand, index])?;
            } else if matches!(self.peek(), TokenKind::Symbol("{")) && operand.qualified().is_some()
            {
                let name = operand.qualified().unwrap_or_default();
                self.next += 1;
                operand = node(
                    start,
                    NodeKind::Struct {
                        name,
                        fields: self.parts("}", Self::field_value)?,
                    },
                )?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn field(&mut self) -> Result<String, Issue> {
        match self.peek() {
            TokenKind::Name(name) if !matches!(name.as_str(), "in" | "true" | "false" | "null") => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.unexpected("a field's name")),
        }
    }

    fn primary(&mut self, negative: bool) -> Result<Node, Issue> {
        let at = self.at();
        let literal = match self.take() {
            TokenKind::Int(text) => {
                Value::Int(integer(&text, negative).ok_or((at, "invalid int literal".to_owned()))?)
            }
            TokenKind::Uint(value) => Value::Uint(value),
            TokenKind::Double(value) => Value::Double(if negative { -value } else { value }),
            TokenKind::String(text) => Value::string(text),
            TokenKind::Bytes(bytes) => Value::Bytes(bytes.into()),
            TokenKind::Name(name) => match name.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "null" => Value::Null,
                _ => return self.name(at, name),
            },
            TokenKind::Symbol(".") => match self.take() {
                TokenKind::Name(name) => return self.name(at, name),
                _ => return Err((at, "Syntax error: expected a name after '.'".to_owned())),
            },
            TokenKind::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            TokenKind::Symbol("[") => {
                return node(at, NodeKind::List(self.parts("]", Self::element)?));
            }
            TokenKind::Symbol("{") => {
                return node(at, NodeKind::Map(self.parts("}", Self::entry)?));
            }
            _ => {
                self.next -= 1;
                return Err(self.unexpected("an expression"));
            }
        };
        node(at, NodeKind::Literal(literal))
    }

    fn name(&mut self, at: u32, name: String) -> Result<Node, Issue> {
        if name == "in" || RESERVED.split(' ').any(|word| word == name) {
            return Err((at, format!("reserved identifier: {name}")));
        }
        if self.accept("(") {
            return member_call(at, None, name, self.arguments()?);
        }
        node(at, NodeKind::Name(name))
    }

    fn arguments(&mut self) -> Result<Vec<Node>, Issue> {
        let mut all = Vec::new();
        if self.accept(")") {
            return Ok(all);
        }
        loop {
            all.push(self.expression()?);
            if self.accept(")") {
                return Ok(all);
            }
            self.expect(",")?;
        }
    }

    /// Reads the parts of a literal up to its end. A comma may follow the last one.
    fn parts<T>(
        &mut self,
        end: &str,
        part: fn(&mut Self) -> Result<T, Issue>,
    ) -> Result<Vec<T>, Issue> {
        let mut all = Vec::new();
        while !self.accept(end) {
            all.push(part(self)?);
            if !self.accept(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(all)
    }

    fn element(&mut self) -> Result<Element, Issue> {
        let optional = self.accept("?");
        Ok(Element {
            node: self.expression()?,
            optional,
        })
    }

    fn entry(&mut self) -> Result<(Node, Element), Issue> {
        let optional = self.accept("?");
        let key = self.expression()?;
        self.expect(":")?;
        let node = self.expression()?;
        Ok((key, Element { node, optional }))
    }

    fn field_value(&mut self) -> Result<(String, Element), Issue> {
        let optional = self.accept("?");
        let name = self.field()?;
        self.expect(":")?;
        let node = self.expression()?;
        Ok((name, Element { node, optional }))
    }
}

fn integer(text: &str, negative: bool) -> Option<i64> {
    let magnitude = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}
