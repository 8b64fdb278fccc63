//! Reads string and bytes literals with their quotes, prefixes and escapes.

use crate::error::Invalid;
use crate::syntax::token::TokenKind;

type Literal = Result<(TokenKind, usize), Invalid>;

/// Reads a literal with the prefix `r`, `b` or `br`; `None` if the text does not start with one.
pub(crate) fn prefixed(rest: &str) -> Option<Literal> {
    // No prefix is longer than two letters.
    let quote = rest
        .bytes()
        .take(3)
        .position(|byte| byte == b'"' || byte == b'\'')?;
    let (raw, bytes) = match rest[..quote].to_ascii_lowercase().as_str() {
        "r" => (true, false),
        "b" => (false, true),
        "br" => (true, true),
        _ => return None,
    };
    Some(literal(&rest[quote..], raw, bytes).map(|(kind, length)| (kind, length + quote)))
}

pub(crate) fn quoted(rest: &str) -> Literal {
    literal(rest, false, false)
}

fn literal(rest: &str, raw: bool, bytes: bool) -> Literal {
    let quote = if rest.starts_with("\"\"\"") || rest.starts_with("'''") {
        &rest[..3]
    } else {
        &rest[..1]
    };
    let mut at = quote.len();
    let start = at;
    loop {
        let left = &rest[at..];
        if left.starts_with(quote) {
            break;
        }
        match left.chars().next() {
            Some('\\') if !raw => {
                at += 1 + left[1..].chars().next().map_or(0, char::len_utf8);
            }
            Some('\n' | '\r') if quote.len() == 1 => {
                return Err("Syntax error: a string without its closing quote".into());
            }
            Some(other) => at += other.len_utf8(),
            None => return Err("Syntax error: a string without its closing quote".into()),
        }
    }
    let text = &rest[start..at];
    let length = at + quote.len();
    let content = if raw {
        text.as_bytes().to_vec()
    } else {
        unescape(text, bytes)?
    };
    if bytes {
        return Ok((TokenKind::Bytes(content), length));
    }
    match String::from_utf8(content) {
        Ok(content) => Ok((TokenKind::String(content), length)),
        Err(_) => Err("Syntax error: a string that is no UTF-8".into()),
    }
}

fn unescape(text: &str, bytes: bool) -> Result<Vec<u8>, Invalid> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut buffer = [0; 4];
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escape = chars.next().ok_or("Syntax error: a lone backslash")?;
        let code = match escape {
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'v' => 0x0b,
            '\\' | '\'' | '"' | '`' | '?' => escape as u32,
            'x' | 'X' => digits(&mut chars, 2, 16)?,
            'u' if !bytes => digits(&mut chars, 4, 16)?,
            'U' if !bytes => digits(&mut chars, 8, 16)?,
            '0'..='3' => {
                let high = escape as u32 - '0' as u32;
                high * 64 + digits(&mut chars, 2, 8)?
            }
            _ => return Err(Invalid(format!("Syntax error: unknown escape \\{escape}"))),
        };
        if bytes {
            out.push(code as u8);
        } else {
            let c = char::from_u32(code).ok_or("Syntax error: an escape that is no character")?;
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
        }
    }
    Ok(out)
}

fn digits(chars: &mut std::str::Chars<'_>, count: usize, radix: u32) -> Result<u32, Invalid> {
    let mut code = 0;
    for _ in 0..count {
        let digit = chars.next().and_then(|c| c.to_digit(radix));
        code = code * radix + digit.ok_or("Syntax error: an escape with too few digits")?;
    }
    Ok(code)
}
