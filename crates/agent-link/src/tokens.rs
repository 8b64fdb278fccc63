//! Checks agents' tokens with the API server. A token that is mounted into a pod is bound to the
//! pod's node (KEP-4193).

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio::sync::Semaphore;

pub(crate) const NODE_EXTRA: &str = "authentication.kubernetes.io/node-name";
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of concurrent reviews: all agents may reconnect at once.
const MAX_CONCURRENT_REVIEWS: usize = 16;
/// The maximum length of a token; usual tokens have one or two thousand bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 16 << 10;
/// The time before the expiry of a token at which its cached review ends.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);
/// The longest time for which a review is cached.
const MAX_CACHE_TIME: Duration = Duration::from_secs(600);
const MAX_CACHED_TOKENS: usize = 20_000;

/// The API server's answer about a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// True if the token is valid.
    pub authenticated: bool,
    /// The audiences of the review that the token is valid for.
    pub audiences: Vec<String>,
    /// The token's user; for a ServiceAccount, `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// The node of the pod that the token was mounted into; `None` if the token is bound to no
    /// node.
    pub node: Option<String>,
}

/// A function that asks the API server about a token.
pub type Review = Arc<
    dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Reviewed, String>> + Send>> + Send + Sync,
>;

/// Checks agents' tokens, and caches the API server's answers.
pub struct TokenReviewer {
    review: Review,
    audience: &'static str,
    user: String,
    /// The node of each valid token and the end of the entry, by the SHA-256 of the token.
    cache: Mutex<HashMap<[u8; 32], (String, SystemTime)>>,
    permits: Semaphore,
}

impl fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenReviewer of {}", self.user)
    }
}

impl TokenReviewer {
    /// Creates a reviewer that accepts tokens of one ServiceAccount, for one audience.
    pub fn new(audience: &'static str, (namespace, account): (&str, &str), review: Review) -> Self {
        Self {
            review,
            audience,
            user: format!("system:serviceaccount:{namespace}:{account}"),
            cache: Mutex::default(),
            permits: Semaphore::new(MAX_CONCURRENT_REVIEWS),
        }
    }

    pub(crate) fn audience(&self) -> &'static str {
        self.audience
    }

    pub(crate) async fn check(&self, token: &str, node: &str) -> Result<(), String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err("the token is too long".to_owned());
        }
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let now = SystemTime::now();
        let cached = self.cache.lock().get(&key).cloned();
        let bound = match cached.filter(|(_, until)| now < *until) {
            Some((bound, _)) => bound,
            None => {
                let bound = self.review(token).await?;
                let until = expiry(token).map(|at| (at - EXPIRY_MARGIN).min(now + MAX_CACHE_TIME));
                if let Some(until) = until.filter(|until| *until > now) {
                    self.insert(key, bound.clone(), until, now);
                }
                bound
            }
        };
        if bound == node {
            Ok(())
        } else {
            Err(format!(
                "the token is of an agent on node {bound}, not on {node}"
            ))
        }
    }

    fn insert(&self, key: [u8; 32], node: String, until: SystemTime, now: SystemTime) {
        let mut cache = self.cache.lock();
        if cache.len() >= MAX_CACHED_TOKENS {
            cache.retain(|_, (_, until)| *until > now);
        }
        if cache.len() < MAX_CACHED_TOKENS {
            cache.insert(key, (node, until));
        }
    }

    async fn review(&self, token: &str) -> Result<String, String> {
        let review = async {
            let _permit = self.permits.acquire().await.map_err(|e| e.to_string())?;
            (self.review)(token.to_owned()).await
        };
        let reviewed = match tokio::time::timeout(REVIEW_TIMEOUT, review).await {
            Ok(reviewed) => reviewed.map_err(|e| format!("the token cannot be reviewed: {e}"))?,
            Err(_) => return Err(format!("no review of the token within {REVIEW_TIMEOUT:?}")),
        };
        if !reviewed.authenticated || !reviewed.audiences.iter().any(|a| a == self.audience) {
            return Err(format!(
                "the API server does not accept the token for audience {}",
                self.audience
            ));
        }
        if reviewed.user != self.user {
            return Err(format!(
                "the token is of {}, not of {}",
                reviewed.user, self.user
            ));
        }
        let unbound = "the token is not bound to a node; use a projected token of the \
                       agent's pod, of Kubernetes 1.30 or later";
        reviewed.node.ok_or_else(|| unbound.to_owned())
    }
}

#[derive(Deserialize)]
struct Claims {
    exp: u64,
}

/// Returns the expiry in a JWT's payload, which can be trusted only after a review.
fn expiry(token: &str) -> Option<SystemTime> {
    let payload = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let at = Duration::from_secs(claims.exp);
    // The bounds keep sums and differences of times in range.
    let valid = EXPIRY_MARGIN < at && at < Duration::from_secs(1 << 40);
    valid.then(|| UNIX_EPOCH.checked_add(at)).flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const AUDIENCE: &str = "tautline-latency";

    fn token(seconds: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let exp = now.as_secs().strict_add_signed(seconds);
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{exp}}}"));
        format!("e30.{claims}.c2ln")
    }

    fn tokens(reviewed: Reviewed) -> (TokenReviewer, Arc<AtomicUsize>) {
        let reviews = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reviews);
        let review: Review = Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            let reviewed = reviewed.clone();
            Box::pin(async { Ok(reviewed) })
        });
        (
            TokenReviewer::new(AUDIENCE, ("ns", "agent"), review),
            reviews,
        )
    }

    fn good() -> Reviewed {
        Reviewed {
            authenticated: true,
            audiences: vec![AUDIENCE.into()],
            user: "system:serviceaccount:ns:agent".into(),
            node: Some("a".into()),
        }
    }

    #[tokio::test]
    async fn review_is_cached_until_near_expiry() {
        let (tokens, reviews) = tokens(good());
        let long = token(3600);
        tokens.check(&long, "a").await.unwrap();
        tokens.check(&long, "a").await.unwrap();
        assert_eq!(reviews.load(Ordering::Relaxed), 1);
        let error = tokens.check(&long, "b").await.unwrap_err();
        assert_eq!(error, "the token is of an agent on node a, not on b");
        for ending in [token(30), "opaque".to_owned()] {
            let before = reviews.load(Ordering::Relaxed);
            tokens.check(&ending, "a").await.unwrap();
            tokens.check(&ending, "a").await.unwrap();
            assert_eq!(reviews.load(Ordering::Relaxed), before + 2, "{ending}");
        }
    }

    #[tokio::test]
    async fn tokens_of_others_are_refused() {
        for (reviewed, why) in [
            (
                Reviewed {
                    authenticated: false,
                    ..good()
                },
                "does not accept the token",
            ),
            (
                Reviewed {
                    audiences: vec![],
                    ..good()
                },
                "does not accept the token",
            ),
            (
                Reviewed {
                    user: "system:serviceaccount:ns:x".into(),
                    ..good()
                },
                "not of system",
            ),
            (
                Reviewed {
                    node: None,
                    ..good()
                },
                "not bound to a node",
            ),
        ] {
            let error = tokens(reviewed)
                .0
                .check(&token(3600), "a")
                .await
                .unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_api_server_times_out() {
        let review: Review = Arc::new(|_| Box::pin(std::future::pending()));
        let tokens = TokenReviewer::new(AUDIENCE, ("ns", "agent"), review);
        let error = tokens.check("t", "a").await.unwrap_err();
        assert!(error.contains("within 5s"), "{error}");
    }
}
