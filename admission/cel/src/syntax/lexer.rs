use crate::error::Invalid;
use crate::syntax::literals;
use crate::syntax::token::{Token, TokenKind};

/// The operators and punctuation marks. The longest come first, so that they match first.
const SYMBOLS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}", "=",
];

/// Returns the tokens of a source, the last one `End`. Fails with the byte offset and reason of the
/// first error.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, (u32, String)> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &source[at..];
        let (kind, length) = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' => {
                at += 1;
                continue;
            }
            b'/' if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            b'0'..=b'9' => number(rest).map_err(|reason| (at as u32, reason.0))?,
            b'.' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                number(rest).map_err(|reason| (at as u32, reason.0))?
            }
            b'"' | b'\'' => literals::quoted(rest).map_err(|reason| (at as u32, reason.0))?,
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => match literals::prefixed(rest) {
                Some(literal) => literal.map_err(|reason| (at as u32, reason.0))?,
                None => {
                    let length = rest
                        .bytes()
                        .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
                        .count();
                    (TokenKind::Name(rest[..length].to_owned()), length)
                }
            },
            _ => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) if *symbol != "=" => (TokenKind::Symbol(symbol), symbol.len()),
                _ => {
                    let odd = rest.chars().next().unwrap_or_default();
                    return Err((
                        at as u32,
                        format!("Syntax error: token recognition error at: '{odd}'"),
                    ));
                }
            },
        };
        found.push(Token {
            at: at as u32,
            kind,
        });
        at += length;
    }
    found.push(Token {
        at: at as u32,
        kind: TokenKind::End,
    });
    Ok(found)
}

fn number(rest: &str) -> Result<(TokenKind, usize), Invalid> {
    let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
    if let Some(digits) = rest.strip_prefix("0x") {
        let length = 2 + digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        return Ok(integer(rest, length));
    }
    let mut length = digits(0);
    let mut whole = true;
    if rest[length..].starts_with('.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
        whole = false;
    }
    if rest[length..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
            whole = false;
        }
    }
    if whole {
        return Ok(integer(rest, length));
    }
    match rest[..length].parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((TokenKind::Double(value), length)),
        _ => Err("invalid double literal".into()),
    }
}

/// Returns an integer token and its length in bytes. An unsigned integer that does not fit 64 bits
/// becomes an `Int` token, which the parser refuses.
fn integer(rest: &str, length: usize) -> (TokenKind, usize) {
    let (text, after) = rest.split_at(length);
    if !after.starts_with(['u', 'U']) {
        return (TokenKind::Int(text.to_owned()), text.len());
    }
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match value {
        Ok(value) => (TokenKind::Uint(value), text.len() + 1),
        Err(_) => (TokenKind::Int(format!("{text}u")), text.len() + 1),
    }
}
