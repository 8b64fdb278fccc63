//! Parses URLs as Go's net/url does.

use crate::error::Invalid;

/// A URL, split into its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub(crate) text: String,
    pub(crate) scheme: String,
    pub(crate) host: String,
    /// The escaped path.
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    /// Parses a URL like Go's `url.Parse`.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        unescape(fragment, false)?;
        let mut url = Self::parts(before, false)?;
        url.text = text.to_owned();
        Ok(url)
    }

    /// Parses a URL like Go's `url.ParseRequestURI`: it must be absolute or a path, and `#` does
    /// not start a fragment.
    pub(crate) fn parse_request(text: &str) -> Result<Self, Invalid> {
        Self::parts(text, true).map_err(|reason| Invalid(format!("parse {text:?}: {reason}")))
    }

    fn parts(text: &str, request: bool) -> Result<Self, Invalid> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".into());
        }
        if text.is_empty() && request {
            return Err("empty url".into());
        }
        let mut url = Self {
            text: text.to_owned(),
            scheme: String::new(),
            host: String::new(),
            path: String::new(),
            query: String::new(),
        };
        if text == "*" {
            text.clone_into(&mut url.path);
            return Ok(url);
        }
        let (scheme, rest) = scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                return Ok(url);
            }
            if request {
                return Err("invalid URI for request".into());
            }
            if rest
                .split('/')
                .next()
                .is_some_and(|first| first.contains(':'))
            {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        let authority = !url.scheme.is_empty() || (!request && !rest.starts_with("///"));
        if authority && let Some(after) = rest.strip_prefix("//") {
            let (found, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            url.host = host(found)?;
            rest = path;
        }
        let path = unescape(rest, false)?;
        url.path = if rest.bytes().all(in_path) {
            rest.to_owned()
        } else {
            escape(&path)
        };
        Ok(url)
    }

    pub(crate) fn name_and_port(&self) -> (&str, &str) {
        match self.host.rfind(':') {
            Some(at) if port(&self.host[at..]) => (&self.host[..at], &self.host[at + 1..]),
            _ => (&self.host, ""),
        }
    }
}

fn scheme(text: &str) -> Result<(&str, &str), Invalid> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Returns whether the text is empty, or a colon followed by digits.
fn port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn host(authority: &str) -> Result<String, Invalid> {
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(fine) {
            return Err("net/url: invalid userinfo".into());
        }
        unescape(user, false)?;
    }
    let bad_port = |text: &str| Err(Invalid(format!("invalid port {text:?} after host")));
    if let Some(inside) = host.strip_prefix('[') {
        let Some(end) = inside.rfind(']') else {
            return Err("missing ']' in host".into());
        };
        if !port(&inside[end + 1..]) {
            return bad_port(&inside[end + 1..]);
        }
        if inside[..end]
            .split('%')
            .next()
            .is_none_or(|address| address.parse::<std::net::Ipv6Addr>().is_err())
        {
            return Err("invalid host".into());
        }
        let (address, zone) = inside[..end]
            .split_once("%25")
            .unwrap_or((&inside[..end], ""));
        let zone = unescape(zone, false)?;
        let mark = if zone.is_empty() { "" } else { "%" };
        return Ok(format!(
            "[{}{mark}{zone}]{}",
            unescape(address, true)?,
            &inside[end + 1..]
        ));
    }
    if let Some(at) = host.find(':')
        && !port(&host[at..])
    {
        return bad_port(&host[at..]);
    }
    unescape(host, true)
}

/// Decodes percent escapes. In a host, only escapes of bytes beyond ASCII are allowed.
pub(crate) fn unescape(text: &str, host: bool) -> Result<String, Invalid> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let digit = |at: usize| {
                bytes
                    .get(at)
                    .and_then(|byte| char::from(*byte).to_digit(16))
            };
            let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
                let wrong = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]);
                return Err(Invalid(format!("invalid URL escape {wrong:?}")));
            };
            let code = (high * 16 + low) as u8;
            if host && code < 0x80 {
                return Err(Invalid(format!("invalid URL escape \"%{code:02X}\"")));
            }
            out.push(code);
            at += 3;
            continue;
        }
        if host
            && byte < 0x80
            && !byte.is_ascii_alphanumeric()
            && !b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
        {
            return Err(Invalid(format!(
                "invalid character {:?} in host name",
                char::from(byte).to_string()
            )));
        }
        out.push(byte);
        at += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Returns whether an escaped path may contain the byte.
fn in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&byte)
}

fn escape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
