use std::{cmp::Reverse, fmt::Write};

use anyhow::{Context, Result, bail};
use hyper::StatusCode;
use serde::de::DeserializeOwned;

use crate::replicas::{Answer, ReplicaArgs};

#[derive(clap::Args)]
pub(super) struct SourceArgs {
    /// Admin port of one latency provider, instead of all replicas
    #[arg(long, env = "TAUTLINE_LATENCY")]
    url: Option<String>,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

impl SourceArgs {
    /// Gets a report; returns `None`, with a line on standard error, if a named node or zone does
    /// not exist.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        report: &str,
        fields: &[(&str, Option<&str>)],
    ) -> Result<Option<T>> {
        let path = format!("/latency/{report}{}", query(fields));
        let url = self.url.as_deref();
        let mut answers = self.replicas.get(url, &["tautline-latency"], &path).await?;
        // Each replica answers for all agents, but a replica that has just started may know less.
        answers.sort_by_key(|a| (a.status != StatusCode::OK, Reverse(a.body.len())));
        let Some(Answer { from, status, body }) = answers.into_iter().next() else {
            return Ok(None);
        };
        let message = String::from_utf8_lossy(&body);
        match status.as_u16() {
            200 => {
                let report = serde_json::from_slice(&body);
                report.map(Some).with_context(|| {
                    format!("{from} returned no report; is it a latency provider of this version?")
                })
            }
            404 if message.starts_with("there is no ") => {
                note!("error: {}", message.trim_end());
                Ok(None)
            }
            404 => bail!(
                "{from} does not exist; it is not the admin port of a latency provider of this version"
            ),
            other => bail!("{from} answered {other}: {}", message.trim()),
        }
    }
}

/// Returns `?a=b&c=d` for the fields that have a value.
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
