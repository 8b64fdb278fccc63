use std::fmt::Write;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use crate::http::Http;

#[derive(clap::Args)]
pub(super) struct SourceArgs {
    /// The latency provider's admin port
    #[arg(
        long,
        default_value = "http://127.0.0.1:9090",
        env = "TAUTLINE_LATENCY"
    )]
    url: String,
}

impl SourceArgs {
    /// A report; `None`, with a line on standard error, if a named node or zone does not exist.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        report: &str,
        fields: &[(&str, Option<&str>)],
    ) -> Result<Option<T>> {
        let base = self.url.trim_end_matches('/');
        let url = format!("{base}/latency/{report}{}", query(fields));
        let (status, body) = Http::default().get(&url).await.with_context(|| {
            "forward the provider's admin port (kubectl -n tautline-system port-forward \
             deploy/tautline-latency 9090), or set --url"
        })?;
        let message = String::from_utf8_lossy(&body);
        match status.as_u16() {
            200 => {
                let report = serde_json::from_slice(&body);
                report.map(Some).with_context(|| {
                    format!("{url} returned no report; is it a latency provider of this version?")
                })
            }
            404 if message.starts_with("there is no ") => {
                note!("error: {}", message.trim_end());
                Ok(None)
            }
            404 => bail!(
                "{url} does not exist; --url is not the admin port of a \
                 latency provider of this version"
            ),
            other => bail!("{url} answered {other}: {}", message.trim()),
        }
    }
}

/// `?a=b&c=d` of the fields that have a value.
fn query(fields: &[(&str, Option<&str>)]) -> String {
    let mut text = String::new();
    for (name, value) in fields {
        let Some(value) = value else { continue };
        text.push(if text.is_empty() { '?' } else { '&' });
        text += name;
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b',' => {
                    text.push(char::from(byte));
                }
                // Writing to a String cannot fail.
                other => _ = write!(text, "%{other:02X}"),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_escapes_values() {
        assert_eq!(query(&[("a", None)]), "");
        let fields = [
            ("by", Some("node")),
            ("zone", None),
            ("nodes", Some("a-1,b.c")),
        ];
        assert_eq!(query(&fields), "?by=node&nodes=a-1,b.c");
        assert_eq!(
            query(&[("to", Some("x&y=ü #"))]),
            "?to=x%26y%3D%C3%BC%20%23"
        );
    }
}
