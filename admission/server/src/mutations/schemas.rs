//! The schemas of the cluster's kinds: OpenAPI v3 documents, fetched in the background and again
//! when they change. The bundled schemas replace documents that are not fetched yet.
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3>

use std::{collections::HashMap, time::Duration};

use kube::Client;
use parking_lot::RwLock;
use serde_json::Value;
use tautline_mutating_policy::Kind;
use tautline_runtime::api_call;
use tautline_structured_merge::{Schema, Schemas};
use tokio_util::sync::CancellationToken;

const REFRESH: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_secs(15);
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Group and version in the form of the index: `api/v1`, `apis/apps/v1`.
fn path_of(kind: &Kind) -> String {
    match kind.group.as_str() {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

#[derive(Default)]
struct Document {
    /// Its URL, which contains a hash of its content.
    url: String,
    schemas: Option<Schemas>,
}

pub(crate) struct SchemaCache {
    client: Client,
    documents: RwLock<HashMap<String, Document>>,
    fetching: tokio::sync::Mutex<()>,
}

impl SchemaCache {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            documents: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn kind(&self, kind: &Kind) -> Option<Schema> {
        let of = |s: &Schemas| s.kind(&kind.group, &kind.version, &kind.kind);
        let documents = self.documents.read();
        let fetched = documents
            .get(&path_of(kind))
            .and_then(|h| of(h.schemas.as_ref()?));
        fetched.or_else(|| of(Schemas::bundled()))
    }

    /// Waits at most 2 s.
    pub(crate) async fn fetch_if_missing(&self, kind: &Kind) {
        let path = path_of(kind);
        if self.kind(kind).is_some() || self.documents.read().contains_key(&path) {
            return;
        }
        let fetch = async {
            let _guard = self.fetching.lock().await;
            if !self.documents.read().contains_key(&path) {
                self.documents.write().insert(path, Document::default());
                self.refresh().await;
            }
        };
        _ = tokio::time::timeout(FETCH_TIMEOUT, fetch).await;
    }

    pub(crate) async fn keep_fresh(&self, stop: CancellationToken) {
        for path in ["api/v1", "apis/apps/v1"] {
            self.documents
                .write()
                .insert(path.to_owned(), Document::default());
        }
        loop {
            let refresh = async {
                let _guard = self.fetching.lock().await;
                self.refresh().await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = refresh => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(REFRESH) => {}
            }
        }
    }

    async fn refresh(&self) {
        let index = match self.get("/openapi/v3").await {
            Ok(index) => index,
            Err(error) => {
                tracing::warn!(%error, "cannot read the cluster's schemas; the bundled ones are used");
                return;
            }
        };
        let index: Value = serde_json::from_str(&index).unwrap_or_default();
        let paths: Vec<(String, String)> = {
            let documents = self.documents.read();
            let known = documents.iter().map(|(path, d)| (path, &d.url));
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
                        tracing::warn!(group = %path, %error, "cannot read schemas; the previous ones stay");
                        continue;
                    }
                },
            };
            tracing::debug!(group = %path, "schemas updated");
            self.documents
                .write()
                .insert(path, Document { url, schemas });
        }
    }

    async fn read(&self, url: &str) -> Result<Schemas, String> {
        let document = self.get(url).await?;
        // Megabytes: parsing must not block requests.
        let read = move || Schemas::read(document.as_bytes());
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|e| e.to_string())?;
        let text = api_call::within(DEADLINE, self.client.request_text(request)).await;
        text.map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_path_is_that_of_the_index() {
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
