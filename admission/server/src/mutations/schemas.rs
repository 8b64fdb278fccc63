//! The types of the cluster's kinds: its OpenAPI v3 documents, a group version
//! each, fetched beside the requests and again when they have changed (a CRD came
//! or went). What is not fetched yet is taken from the bundled ones.
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3>

use std::{collections::HashMap, time::Duration};

use kube::Client;
use parking_lot::RwLock;
use serde_json::Value;
use tautline_mutating_policy::Kind;
use tautline_structured_merge::{Schema, Schemas};
use tokio_util::sync::CancellationToken;

/// Between two looks whether anything has changed: the index is small.
const LOOK: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_secs(15);
/// The most that a request waits for a type that nobody has asked for yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// Group and version as the index has them: `api/v1`, `apis/apps/v1`.
fn path_of(kind: &Kind) -> String {
    match kind.group.as_str() {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

/// A document; `None`: the API server has none.
#[derive(Default)]
struct Document {
    /// The document's address, with a hash of its contents in it.
    url: String,
    schemas: Option<Schemas>,
}

/// What has been fetched.
pub(crate) struct SchemaCache {
    client: Client,
    documents: RwLock<HashMap<String, Document>>,
    /// One fetch at a time.
    turn: tokio::sync::Mutex<()>,
}

impl SchemaCache {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            documents: RwLock::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The type of a kind as it is known now.
    pub(crate) fn kind(&self, kind: &Kind) -> Option<Schema> {
        let of = |s: &Schemas| s.kind(&kind.group, &kind.version, &kind.kind);
        let held = self.documents.read();
        let fetched = held
            .get(&path_of(kind))
            .and_then(|h| of(h.schemas.as_ref()?));
        fetched.or_else(|| of(Schemas::bundled()))
    }

    /// Fetches the type of a kind that nobody has asked for yet; waits a moment.
    pub(crate) async fn fetch_if_missing(&self, kind: &Kind) {
        let path = path_of(kind);
        if self.kind(kind).is_some() || self.documents.read().contains_key(&path) {
            return;
        }
        let fetch = async {
            let _turn = self.turn.lock().await;
            if !self.documents.read().contains_key(&path) {
                self.documents.write().insert(path, Document::default());
                self.refresh().await;
            }
        };
        _ = tokio::time::timeout(PATIENCE, fetch).await;
    }

    /// Keeps what has been asked for in step until told to stop.
    pub(crate) async fn keep_fresh(&self, stop: CancellationToken) {
        for path in ["api/v1", "apis/apps/v1"] {
            self.documents
                .write()
                .insert(path.to_owned(), Document::default());
        }
        loop {
            let turn = async {
                let _turn = self.turn.lock().await;
                self.refresh().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = turn => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Fetches every document whose address is another than it was.
    async fn refresh(&self) {
        let index = match self.get("/openapi/v3").await {
            Ok(index) => index,
            Err(error) => {
                tracing::warn!(%error, "the types of the cluster's kinds are not known; the bundled ones count");
                return;
            }
        };
        let index: Value = serde_json::from_str(&index).unwrap_or_default();
        let paths: Vec<(String, String)> = {
            let held = self.documents.read();
            let known = held.iter().map(|(path, held)| (path, &held.url));
            let changed = known.filter_map(|(path, before)| {
                let url = index["paths"][path]["serverRelativeURL"]
                    .as_str()
                    .unwrap_or_default();
                (url != before).then(|| (path.clone(), url.to_owned()))
            });
            changed.collect()
        };
        for (path, url) in paths {
            let schemas = match url.is_empty() {
                true => None,
                false => match self.read(&url).await {
                    Ok(schemas) => Some(schemas),
                    Err(error) => {
                        tracing::warn!(group = %path, %error, "types are not read; what is known stays");
                        continue;
                    }
                },
            };
            tracing::debug!(group = %path, "types are read");
            self.documents
                .write()
                .insert(path, Document { url, schemas });
        }
    }

    async fn read(&self, url: &str) -> Result<Schemas, String> {
        let document = self.get(url).await?;
        // Megabytes: not between requests.
        let read = move || Schemas::read(document.as_bytes());
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|e| e.to_string())?;
        match tokio::time::timeout(DEADLINE, self.client.request_text(request)).await {
            Ok(text) => text.map_err(|e| e.to_string()),
            Err(_) => Err("the API server did not answer in time".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_named_as_in_the_index() {
        let of = |group: &str, version: &str| {
            path_of(&Kind {
                group: group.into(),
                version: version.into(),
                kind: String::new(),
            })
        };
        assert_eq!(of("", "v1"), "api/v1");
        assert_eq!(of("apps", "v1"), "apis/apps/v1");
    }
}
