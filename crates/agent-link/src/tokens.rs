//! Checks agents' tokens with the API server. A token that is mounted into a pod is bound to the
//! pod's node (KEP-4193).

use std::{
    collections::HashMap,
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tautline_runtime::error_text::error_text;
use tokio::sync::Semaphore;

const NODE_EXTRA: &str = "authentication.kubernetes.io/node-name";
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

/// The reason why a token proves no node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token is too long")]
    TooLong,
    #[error("the token is of an agent on node {0}, not on {1}")]
    OtherNode(String, String),
    #[error("the token cannot be reviewed: {0}")]
    NotReviewed(String),
    #[error("no review of the token within {REVIEW_TIMEOUT:?}")]
    Late,
    #[error("the API server does not accept the token for audience {0}")]
    NotAccepted(&'static str),
    #[error("the token is of {0}, not of {1}")]
    OtherUser(String, String),
    #[error(
        "the token is not bound to a node; use a projected token of the agent's pod, of Kubernetes \
         1.30 or later"
    )]
    Unbound,
}

/// Checks agents' tokens with the TokenReview API, and caches the API server's answers.
pub struct TokenReviewer {
    api: Api<TokenReview>,
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
    pub fn new(client: Client, audience: &'static str, (namespace, account): (&str, &str)) -> Self {
        Self {
            api: Api::all(client),
            audience,
            user: format!("system:serviceaccount:{namespace}:{account}"),
            cache: Mutex::default(),
            permits: Semaphore::new(MAX_CONCURRENT_REVIEWS),
        }
    }

    pub(crate) fn audience(&self) -> &'static str {
        self.audience
    }

    pub(crate) async fn check(&self, token: &str, node: &str) -> Result<(), TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
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
            Err(TokenError::OtherNode(bound, node.to_owned()))
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

    /// Asks the API server about a token, and returns the node of the pod that it was mounted into.
    async fn review(&self, token: &str) -> Result<String, TokenError> {
        let spec = TokenReviewSpec {
            audiences: Some(vec![self.audience.to_owned()]),
            token: token.to_owned(),
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let answer = async {
            let _permit = self.permits.acquire().await;
            self.api.create(&PostParams::default(), &review).await
        };
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, answer).await;
        let answer = answer.map_err(|_| TokenError::Late)?;
        let answer = answer.map_err(|e| TokenError::NotReviewed(error_text(&e)))?;
        let status = answer.status.unwrap_or_default();
        let audiences = status.audiences.unwrap_or_default();
        if status.authenticated != Some(true) || !audiences.iter().any(|a| a == self.audience) {
            return Err(TokenError::NotAccepted(self.audience));
        }
        let user = status.user.unwrap_or_default();
        let name = user.username.unwrap_or_default();
        if name != self.user {
            return Err(TokenError::OtherUser(name, self.user.clone()));
        }
        let nodes = user.extra.and_then(|mut extra| extra.remove(NODE_EXTRA));
        let node = nodes.and_then(|names| names.into_iter().next());
        node.ok_or(TokenError::Unbound)
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
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::{Request, Response};
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    const AUDIENCE: &str = "tautline-latency";

    fn token(seconds: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let exp = now.as_secs().strict_add_signed(seconds);
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{exp}}}"));
        format!("e30.{claims}.c2ln")
    }

    /// A reviewer whose API server always answers with this status, and the number of its reviews.
    fn tokens(status: Option<TokenReviewStatus>) -> (TokenReviewer, Arc<AtomicUsize>) {
        let reviews = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reviews);
        let answer = TokenReview {
            status,
            ..TokenReview::default()
        };
        let answer = serde_json::to_vec(&answer).unwrap();
        let api_server = service_fn(move |request: Request<Body>| {
            let (count, answer) = (Arc::clone(&count), answer.clone());
            async move {
                let asked = request.into_body().collect_bytes().await.unwrap();
                let asked: TokenReview = serde_json::from_slice(&asked).unwrap();
                assert_eq!(asked.spec.audiences.unwrap(), [AUDIENCE]);
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(Response::new(Body::from(answer)))
            }
        });
        let client = Client::new(api_server, "default");
        (
            TokenReviewer::new(client, AUDIENCE, ("ns", "agent")),
            reviews,
        )
    }

    fn good() -> TokenReviewStatus {
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![AUDIENCE.into()]),
            user: Some(user("agent", Some("a"))),
            ..TokenReviewStatus::default()
        }
    }

    fn user(account: &str, node: Option<&str>) -> UserInfo {
        let node = node.map(|node| (NODE_EXTRA.to_owned(), vec![node.to_owned()]));
        UserInfo {
            username: Some(format!("system:serviceaccount:ns:{account}")),
            extra: Some(node.into_iter().collect()),
            ..UserInfo::default()
        }
    }

    #[tokio::test]
    async fn review_is_cached_until_near_expiry() {
        let (tokens, reviews) = tokens(Some(good()));
        let long = token(3600);
        tokens.check(&long, "a").await.unwrap();
        tokens.check(&long, "a").await.unwrap();
        assert_eq!(reviews.load(Ordering::Relaxed), 1);
        let error = tokens.check(&long, "b").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the token is of an agent on node a, not on b"
        );
        for ending in [token(30), "opaque".to_owned()] {
            let before = reviews.load(Ordering::Relaxed);
            tokens.check(&ending, "a").await.unwrap();
            tokens.check(&ending, "a").await.unwrap();
            assert_eq!(reviews.load(Ordering::Relaxed), before + 2, "{ending}");
        }
    }

    #[tokio::test]
    async fn tokens_of_others_are_refused() {
        let with = |change: fn(&mut TokenReviewStatus)| {
            let mut status = good();
            change(&mut status);
            Some(status)
        };
        for (status, why) in [
            (None, "does not accept the token"),
            (
                with(|s| s.authenticated = Some(false)),
                "does not accept the token",
            ),
            (with(|s| s.audiences = None), "does not accept the token"),
            (
                with(|s| s.user = Some(user("x", Some("a")))),
                "not of system",
            ),
            (
                with(|s| s.user = Some(user("agent", None))),
                "not bound to a node",
            ),
        ] {
            let checked = tokens(status).0.check(&token(3600), "a").await;
            let error = checked.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_api_server_times_out() {
        let silent = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let client = Client::new(silent, "default");
        let tokens = TokenReviewer::new(client, AUDIENCE, ("ns", "agent"));
        let error = tokens.check("t", "a").await.unwrap_err().to_string();
        assert!(error.contains("within 5s"), "{error}");
    }
}
