//! Puts the failures of a connection to a cluster into words: the problem and its fix, alike in
//! every command.

mod connection;

use std::error::Error;

use kube::{client::UpgradeConnectionError, config::ExecConfig, core::Status};
use tautline_core::text::shorten;
use tautline_runtime::error_text::error_text;

pub(crate) use connection::{ApiServerAddress, NoAnswer};

const NOT_KUBERNETES: &str = "is the address that of a Kubernetes API server? Correct server: of the \
                              kubeconfig's cluster, or choose another context with --context";

/// Returns an error and its causes; a failure of the cluster has its fix.
pub(crate) fn text(error: &anyhow::Error) -> String {
    let chain: Vec<_> = error.chain().collect();
    let cluster = |cause: &&(dyn Error + 'static)| cause.is::<kube::Error>();
    let Some(at) = chain.iter().position(cluster) else {
        return error_text(error.as_ref());
    };
    let fault = chain[at].downcast_ref::<kube::Error>();
    let inner = chain[at].to_string();
    let mut parts: Vec<String> = Vec::new();
    for context in &chain[..at] {
        // Some errors print their cause too.
        let whole = context.to_string();
        let own = whole.split(&inner).next().unwrap_or_default();
        let own = own.trim_end_matches([':', ' ']).to_owned();
        if !own.is_empty() && !parts.contains(&own) {
            parts.push(own);
        }
    }
    parts.extend(fault.map(explain));
    parts.join(": ")
}

/// Returns the problem and its fix.
pub(crate) fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => match (status.code, cause(error)) {
            (..500, why) if is_page(status) => format!("{why}; {NOT_KUBERNETES}"),
            (401, why) => format!(
                "the cluster does not take these credentials ({why}); renew those of the \
                 kubeconfig's context, or choose another with --context"
            ),
            (403, why) => format!("{why}; ask for a role with this right"),
            (404, why) => format!("{why} (404); {NOT_KUBERNETES}"),
            (code, why) => format!("{why} ({code})"),
        },
        kube::Error::SerdeError(why) => format!(
            "the answer is not that of a Kubernetes API server ({why}); a login page of a proxy? \
             Otherwise {NOT_KUBERNETES}"
        ),
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => {
            let fix = match status.as_u16() {
                401 | 403 => "ask for a role with the verbs get and create on pods/portforward",
                _ => "does a proxy between here and the API server stop WebSockets?",
            };
            format!("the API server answered {status}; {fix}")
        }
        kube::Error::Service(error) if error.is::<NoAnswer>() => error.to_string(),
        kube::Error::Service(error) => connection::explain(error.as_ref(), None),
        other => connection::explain(other, None),
    }
}

/// Returns whether an answer is an HTML page, which no API server sends.
pub(crate) fn is_page(status: &Status) -> bool {
    status.message.trim_start().starts_with('<')
}

/// Returns the text of the innermost cause, without a fix.
pub(crate) fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => match status.message.trim() {
            "" => format!("code {}", status.code),
            _ if is_page(status) => format!("an HTML page with code {}", status.code),
            message => message.to_owned(),
        },
        kube::Error::Service(error) if error.is::<NoAnswer>() => error.to_string(),
        other => connection::innermost(other),
    }
}

/// Returns the problem of a client that cannot be made, and its fix.
pub(crate) fn without_client(error: kube::Error, plugin: Option<&ExecConfig>) -> anyhow::Error {
    use kube::client::AuthError;
    let (kube::Error::Auth(auth), Some(plugin)) = (&error, plugin) else {
        return error.into();
    };
    let name = plugin.command.as_deref().unwrap_or_default();
    let name = format!("the kubeconfig's credential plugin {:?}", shorten(name));
    let hint = plugin.install_hint.as_deref().map(str::trim);
    match auth {
        AuthError::AuthExecStart(why) => anyhow::anyhow!(
            "{name} cannot be run: {why}; {}, or correct users[].user.exec.command",
            hint.filter(|hint| !hint.is_empty())
                .unwrap_or("install it, or add its folder to PATH")
        ),
        AuthError::AuthExecRun { out, .. } => {
            let printed = String::from_utf8_lossy(&out.stderr);
            let why = match printed.trim() {
                "" => "its own message is above, if it has one",
                printed => &shorten(printed),
            };
            anyhow::anyhow!(
                "{name} failed ({}): {why}; log in again, or run it by hand",
                out.status
            )
        }
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => anyhow::anyhow!(
            "{name} printed no ExecCredential with a status; update it, or correct \
             users[].user.exec.args"
        ),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests;
