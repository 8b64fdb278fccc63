//! Caches the schemas of the cluster's kinds. They come from OpenAPI v3 documents, which are
//! fetched in the background and again when they change. The bundled schemas replace documents that
//! are not fetched yet.
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3>

use std::{collections::HashMap, time::Duration};

use kube::Client;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tautline_mutating_policy::Kind;
use tautline_runtime::api_call::{ApiCallError, within};
use tautline_structured_merge::{Schema, SchemaError, Schemas};
use tokio::{task::JoinError, time::Instant};

/// The time between two refreshes in the background.
const REFRESH_INTERVAL: Duration = Duration::from_secs(20);
/// The longest time for one document or the index.
const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// The longest time that a request waits for a missing schema.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay before a missing schema is requested again. The API server publishes the schema of a
/// new CRD within a second.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// The age from which a request for a custom resource reads the index again. The resource's
/// definition may have been deleted and created with another schema.
const MAX_INDEX_AGE: Duration = Duration::from_secs(1);
/// The longest time that such a request waits for the index and a changed document.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of kinds that are remembered as absent.
const MAX_ABSENT: usize = 1024;

/// The reason why a document was not read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Call(#[from] ApiCallError),
    #[error(transparent)]
    Parse(#[from] SchemaError),
    #[error(transparent)]
    Panic(#[from] JoinError),
}

/// Returns the group and version in the form of the index, such as `api/v1` or `apis/apps/v1`.
fn path_of(kind: &Kind) -> String {
    match kind.group.as_str() {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

#[derive(Default)]
struct Document {
    /// The URL of the document, which contains a hash of its content.
    url: String,
    schemas: Option<Schemas>,
}

pub(crate) struct SchemaCache {
    client: Client,
    documents: RwLock<HashMap<String, Document>>,
    fetching: tokio::sync::Mutex<()>,
    /// The time at which the index was last requested.
    checked: Mutex<Option<Instant>>,
    /// The kinds without a schema, with the time at which a request last waited for them in vain.
    absent: Mutex<HashMap<Kind, Instant>>,
}

impl SchemaCache {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            documents: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
            checked: Mutex::default(),
            absent: Mutex::default(),
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

    /// Fetches the schema of a kind if it is missing. Waits at most 2 s, because the schema of a
    /// kind that was just created may not be published yet. After that, until the next refresh,
    /// requests for the kind look for its schema once, without waiting.
    pub(crate) async fn fetch_if_missing(&self, kind: &Kind) {
        let is_missing = || self.kind(kind).is_none();
        if !is_missing() {
            self.fetch_if_old(kind).await;
            return;
        }
        let look_once = self.is_absent(kind);
        let fetch = async {
            loop {
                let guard = self.fetching.lock().await;
                if !is_missing() {
                    return;
                }
                self.documents.write().entry(path_of(kind)).or_default();
                self.refresh().await;
                drop(guard);
                if look_once || !is_missing() {
                    return;
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        };
        if tokio::time::timeout(FETCH_TIMEOUT, fetch).await.is_err() {
            let mut absent = self.absent.lock();
            if absent.len() >= MAX_ABSENT {
                absent.clear();
            }
            absent.insert(kind.clone(), Instant::now());
        }
    }

    /// Fetches the schema of a custom resource again if the index is old and has changed. Built-in
    /// kinds change only with the API server. Without an answer the known schema remains in use.
    async fn fetch_if_old(&self, kind: &Kind) {
        let built_in = Schemas::bundled().kind(&kind.group, &kind.version, &kind.kind);
        let is_old = || {
            let checked = *self.checked.lock();
            checked.is_none_or(|at| at.elapsed() >= MAX_INDEX_AGE)
        };
        if built_in.is_some() || !is_old() {
            return;
        }
        let fetch = async {
            let _guard = self.fetching.lock().await;
            if is_old() {
                self.refresh().await;
            }
        };
        _ = tokio::time::timeout(CHECK_TIMEOUT, fetch).await;
    }

    fn is_absent(&self, kind: &Kind) -> bool {
        let absent = self.absent.lock();
        absent
            .get(kind)
            .is_some_and(|at| at.elapsed() < REFRESH_INTERVAL)
    }

    /// Refreshes the schemas for as long as the future is polled.
    pub(crate) async fn keep_fresh(&self) {
        let known = ["api/v1", "apis/apps/v1"].map(|path| (path.to_owned(), Document::default()));
        self.documents.write().extend(known);
        loop {
            let guard = self.fetching.lock().await;
            self.refresh().await;
            drop(guard);
            tokio::time::sleep(REFRESH_INTERVAL).await;
        }
    }

    async fn refresh(&self) {
        *self.checked.lock() = Some(Instant::now());
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
            let schemas = if url.is_empty() {
                None
            } else {
                match self.read(&url).await {
                    Ok(schemas) => Some(schemas),
                    Err(error) => {
                        tracing::warn!(group = %path, %error, "cannot read schemas; the previous ones stay");
                        continue;
                    }
                }
            };
            tracing::debug!(group = %path, "schemas updated");
            self.documents
                .write()
                .insert(path, Document { url, schemas });
        }
    }

    async fn read(&self, url: &str) -> Result<Schemas, ReadError> {
        let document = self.get(url).await?;
        // A document may have megabytes, and parsing it must not block requests.
        let read = move || Schemas::read(document.as_bytes());
        Ok(tokio::task::spawn_blocking(read).await??)
    }

    async fn get(&self, path: &str) -> Result<String, ApiCallError> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        within(CALL_DEADLINE, self.client.request_text(request)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server that publishes the kind `Widget` after some requests of its index; `None`:
    /// never. The second value counts these requests.
    fn publishing(after: Option<usize>) -> (SchemaCache, Arc<AtomicUsize>) {
        publishing_versions(after, usize::MAX)
    }

    /// Another schema, with the field `size`, from the request `remade` of the index on.
    fn publishing_versions(after: Option<usize>, remade: usize) -> (SchemaCache, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let body = match request.uri().path() {
                "/openapi/v3" => {
                    let asked = seen.fetch_add(1, Ordering::Relaxed);
                    let url = format!(
                        "/openapi/v3/apis/example.com/v1?hash={}",
                        u8::from(asked >= remade)
                    );
                    match after.is_some_and(|after| asked >= after) {
                        true => {
                            json!({"paths": {"apis/example.com/v1": {"serverRelativeURL": url}}})
                        }
                        false => json!({"paths": {}}),
                    }
                }
                _ => json!({"components": {"schemas": {"com.example.v1.Widget": {
                    "type": "object",
                    "properties": match request.uri().query() {
                        Some("hash=1") => json!({"size": {"type": "string"}}),
                        _ => json!({"color": {"type": "string"}}),
                    },
                    "x-kubernetes-group-version-kind":
                        [{"group": "example.com", "version": "v1", "kind": "Widget"}]}}}}),
            };
            let response = http::Response::new(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        (SchemaCache::new(Client::new(service, "default")), count)
    }

    fn widget() -> Kind {
        Kind {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Widget".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fetch_waits_for_a_schema_that_is_just_published() {
        let (cache, requests) = publishing(Some(3));
        cache.fetch_if_missing(&widget()).await;
        assert!(cache.kind(&widget()).is_some());
        assert_eq!(requests.load(Ordering::Relaxed), 4);
        cache.fetch_if_missing(&widget()).await;
        assert_eq!(requests.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn schema_of_a_remade_definition_is_known_after_a_second() {
        let (cache, requests) = publishing_versions(Some(0), 1);
        let has_size = || {
            let schema = cache.kind(&widget());
            schema.is_some_and(|s| s.field("size").is_some())
        };
        cache.fetch_if_missing(&widget()).await;
        assert!(!has_size());
        cache.fetch_if_missing(&widget()).await;
        assert_eq!(requests.load(Ordering::Relaxed), 1, "known a moment ago");
        tokio::time::advance(MAX_INDEX_AGE).await;
        cache.fetch_if_missing(&widget()).await;
        assert!(has_size());
        let pod = Kind {
            version: "v1".into(),
            kind: "Pod".into(),
            ..Kind::default()
        };
        tokio::time::advance(MAX_INDEX_AGE).await;
        cache.fetch_if_missing(&pod).await;
        assert_eq!(requests.load(Ordering::Relaxed), 2, "built in");
    }

    #[tokio::test(start_paused = true)]
    async fn fetch_of_a_kind_without_schema_waits_once() {
        let (cache, requests) = publishing(None);
        let begun = Instant::now();
        cache.fetch_if_missing(&widget()).await;
        assert!(begun.elapsed() >= FETCH_TIMEOUT);
        let (asked, begun) = (requests.load(Ordering::Relaxed), Instant::now());
        cache.fetch_if_missing(&widget()).await;
        assert_eq!(requests.load(Ordering::Relaxed), asked + 1);
        assert!(begun.elapsed() < RETRY_DELAY);
        tokio::time::advance(REFRESH_INTERVAL).await;
        cache.fetch_if_missing(&widget()).await;
        assert!(requests.load(Ordering::Relaxed) > asked);
    }

    #[tokio::test(start_paused = true)]
    async fn fetch_finds_a_schema_that_was_absent_before() {
        let (cache, requests) = publishing(Some(30));
        let mut tries = 0;
        while cache.kind(&widget()).is_none() {
            cache.fetch_if_missing(&widget()).await;
            tries += 1;
            assert!(tries < 100, "{} requests", requests.load(Ordering::Relaxed));
        }
    }

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
