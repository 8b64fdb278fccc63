use super::error::ReportError;

pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str, known: &[&str]) -> Result<Self, ReportError> {
        let mut fields: Vec<(String, String)> = Vec::new();
        for part in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if !known.contains(&name) {
                let field: String = name.chars().take(40).collect();
                let what = format!("no such field; there are {}", known.join(", "));
                return Err(ReportError::query(&field, what));
            }
            let error = |what: &str| ReportError::query(name, what);
            if fields.iter().any(|(n, _)| n == name) {
                return Err(error("it is given twice; write it once"));
            }
            let value =
                decode(value).ok_or_else(|| error("it does not decode; write %XX of UTF-8"))?;
            fields.push((name.to_owned(), value));
        }
        Ok(Self(fields))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, _)| n == name)?;
        Some(value.as_str()).filter(|v| !v.is_empty())
    }

    pub(super) fn need(&self, name: &str) -> Result<&str, ReportError> {
        self.get(name)
            .ok_or_else(|| ReportError::query(name, "it is missing; name a node"))
    }
}

/// Decodes percent-encoding: <https://url.spec.whatwg.org/#percent-encoded-bytes>.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Result<Query, ReportError> {
        Query::parse(text, &["from", "to"])
    }

    #[test]
    fn fields_are_decoded_and_wrong_ones_named() {
        let query = of("from=a%2Db&to=").unwrap();
        assert_eq!(query.get("from"), Some("a-b"));
        assert_eq!(query.get("to"), None);
        let error =
            |r: Result<Query, ReportError>| r.err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(error(of("fro=a")), "fro: no such field; there are from, to");
        assert!(error(of("to=a&to=b")).contains("twice"));
        assert!(error(of("to=%f")).contains("%XX"));
        assert!(error(of("to=%ff")).contains("UTF-8"));
        assert_eq!(
            query.need("to").unwrap_err().to_string(),
            "to: it is missing; name a node"
        );
        assert!(of("").is_ok());
    }

    proptest! {
        #[test]
        fn any_text_parses_or_errs(text in ".{0,60}") { _ = of(&text); }

        #[test]
        fn decode_reverses_encode(text in ".{1,20}") {
            let encoded: String = text.bytes().map(|b| format!("%{b:02x}")).collect();
            let query = of(&format!("to={encoded}")).unwrap();
            prop_assert_eq!(query.get("to"), Some(text.as_str()));
        }
    }
}
