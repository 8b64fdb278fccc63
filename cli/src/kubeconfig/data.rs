//! Reads the certificates, keys and tokens of a kubeconfig, each of which is in the kubeconfig
//! itself or in a file.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::config::AuthInfo;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tautline_core::text::shorten;

use super::Entry;

/// The fields that name a file, relative to the folder of the kubeconfig.
const FILES: [&str; 4] = [
    "certificate-authority",
    "client-certificate",
    "client-key",
    "tokenFile",
];

/// Returns an entry without empty fields, without line breaks in its data, and with paths from the
/// working folder on.
pub(super) fn normal(mut entry: Value, folder: &Path) -> Value {
    let fields = match &mut entry {
        Value::Object(fields) => fields,
        Value::Null => return json!({}),
        _ => return entry,
    };
    // An absolute path stays absolute.
    let resolve = |path: &str| json!(folder.join(path).to_string_lossy());
    for (field, value) in fields.iter_mut() {
        let Some(text) = value.as_str() else { continue };
        *value = match text.trim() {
            "" => Value::Null,
            _ if field.ends_with("-data") => text.split_whitespace().collect::<String>().into(),
            text if FILES.contains(&field.as_str()) => resolve(text),
            text => text.into(),
        };
    }
    // A command without a slash is looked up in PATH.
    let command = fields
        .get_mut("exec")
        .and_then(|exec| exec.get_mut("command"));
    if let Some(command) = command
        && let Some(path) = command.as_str().filter(|path| path.contains('/'))
    {
        *command = resolve(path);
    }
    fields.retain(|_, value| !value.is_null());
    entry
}

/// Reads the certificates of the CA that a server's certificate must come from.
pub(super) fn authority(cluster: &Entry) -> Result<Option<Vec<Vec<u8>>>> {
    let Some((at, pem)) = content(cluster, "certificate-authority")? else {
        return Ok(None);
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match read {
        Ok(all) if !all.is_empty() => Ok(Some(all.iter().map(|der| der.to_vec()).collect())),
        _ => bail!("{at}: holds no certificate in PEM; name the CA of the server"),
    }
}

/// Reads the credentials of a user. It looks at their files, so that errors name them.
pub(super) fn credentials(mut user: Entry) -> Result<AuthInfo> {
    let certificate = content(&user, "client-certificate")?;
    match (certificate, content(&user, "client-key")?) {
        (Some(_), None) => bail!(
            "{}: is missing beside client-certificate",
            user.at("client-key")
        ),
        (None, Some(_)) => bail!(
            "{}: is missing beside client-key",
            user.at("client-certificate")
        ),
        _ => {}
    }
    if let Some(path) = user.value["tokenFile"].as_str().map(Path::new) {
        let at = file_at(&user, "tokenFile", path);
        let token = fs::read_to_string(path).with_context(|| at.clone())?;
        let trimmed = token.trim();
        if trimmed.is_empty() {
            bail!("{at}: is empty; write a token into it");
        }
        // The file takes precedence over a token, as in kubectl.
        user.value["token"] = Value::Null;
        if trimmed != token {
            // The client library sends the whole file, and a header must not have a line break.
            tracing::warn!(
                "{at}: ends with a line break, so it is read only once; write it without one to \
                 have it read again when it changes"
            );
            user.value["token"] = trimmed.into();
            user.value["tokenFile"] = Value::Null;
        }
    }
    user.decode()
}

/// Returns the content of `FIELD-data`, else of the file that `FIELD` names, and its place.
fn content(entry: &Entry, field: &str) -> Result<Option<(String, Vec<u8>)>> {
    let data = format!("{field}-data");
    if let Some(text) = entry.value[&data].as_str() {
        let at = entry.at(&data);
        return match STANDARD.decode(text) {
            Ok(bytes) => Ok(Some((at, bytes))),
            Err(error) => bail!("{at}: is not base64: {error}; encode the PEM file"),
        };
    }
    let Some(file) = entry.value[field].as_str().map(Path::new) else {
        return Ok(None);
    };
    let at = file_at(entry, field, file);
    let bytes =
        fs::read(file).with_context(|| format!("{at}: cannot be read; correct the path"))?;
    Ok(Some((at, bytes)))
}

fn file_at(entry: &Entry, field: &str, file: &Path) -> String {
    let file = file.display().to_string();
    format!("{}: {}", entry.at(field), shorten(&file))
}
