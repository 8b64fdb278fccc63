//! Tokens of the agents' ServiceAccount, reviewed by the API server. A token that
//! is mounted into a pod is bound to the pod's node (KEP-4193).

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

/// The audience that tokens must be of.
pub const AUDIENCE: &str = "tautline-latency";
/// The extra field of a review that names the node.
pub const NODE_EXTRA: &str = "authentication.kubernetes.io/node-name";
/// The most that the API server may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// Reviews at a time: agents that all come back at once must not flood it.
const AT_ONCE: usize = 16;
const LONGEST_TOKEN_BYTES: usize = 16 << 10;
/// A token is looked at again so long before it expires, and after this in any case.
const NEAR_EXPIRY: Duration = Duration::from_secs(60);
const KNOWN_FOR: Duration = Duration::from_secs(600);
const MOST_KNOWN: usize = 20_000;

/// What the API server says of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    pub authenticated: bool,
    pub audiences: Vec<String>,
    /// "system:serviceaccount:NAMESPACE:NAME".
    pub user: String,
    /// The node that the token is bound to.
    pub node: Option<String>,
}

/// Asks the API server of a token; an error says why it could not be asked.
pub type Review = Arc<
    dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Reviewed, String>> + Send>> + Send + Sync,
>;

/// Checks tokens.
pub struct Tokens {
    review: Review,
    user: String,
    /// By the SHA-256 of the token: its node, until when it is believed.
    known: Mutex<HashMap<[u8; 32], (String, SystemTime)>>,
    asking: Semaphore,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens of {}", self.user)
    }
}

impl Tokens {
    /// Takes tokens of one ServiceAccount.
    pub fn new(namespace: &str, account: &str, review: Review) -> Self {
        Self {
            review,
            user: format!("system:serviceaccount:{namespace}:{account}"),
            known: Mutex::default(),
            asking: Semaphore::new(AT_ONCE),
        }
    }

    /// Whether the token is of the agent on this node; if not, why.
    pub(crate) async fn admit(&self, token: &str, node: &str) -> Result<(), String> {
        if token.len() > LONGEST_TOKEN_BYTES {
            return Err("the token is too long".to_owned());
        }
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let now = SystemTime::now();
        let known = self.known.lock().get(&key).cloned();
        let bound = match known.filter(|(_, until)| now < *until) {
            Some((bound, _)) => bound,
            None => {
                let bound = self.ask(token).await?;
                let until = expiry(token).map(|at| (at - NEAR_EXPIRY).min(now + KNOWN_FOR));
                if let Some(until) = until.filter(|until| *until > now) {
                    self.remember(key, bound.clone(), until, now);
                }
                bound
            }
        };
        match bound == node {
            true => Ok(()),
            false => Err(format!(
                "the token is of an agent on node {bound}, not on {node}"
            )),
        }
    }

    fn remember(&self, key: [u8; 32], node: String, until: SystemTime, now: SystemTime) {
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MOST_KNOWN {
            known.insert(key, (node, until));
        }
    }

    /// The node that a token is bound to, as the API server says.
    async fn ask(&self, token: &str) -> Result<String, String> {
        let asked = async {
            let _one = self.asking.acquire().await.map_err(|e| e.to_string())?;
            (self.review)(token.to_owned()).await
        };
        let reviewed = match tokio::time::timeout(DEADLINE, asked).await {
            Ok(reviewed) => reviewed.map_err(|e| format!("the token cannot be reviewed: {e}"))?,
            Err(_) => return Err(format!("no review of the token within {DEADLINE:?}")),
        };
        if !reviewed.authenticated || !reviewed.audiences.iter().any(|a| a == AUDIENCE) {
            return Err(format!(
                "the API server does not know the token for audience {AUDIENCE}"
            ));
        }
        if reviewed.user != self.user {
            return Err(format!(
                "the token is of {}, not of {}",
                reviewed.user, self.user
            ));
        }
        let unbound = "the token is bound to no node; it must be a projected token of the \
                       agent's pod, of Kubernetes 1.30 or later";
        reviewed.node.ok_or_else(|| unbound.to_owned())
    }
}

#[derive(Deserialize)]
struct Claims {
    exp: u64,
}

/// When a JWT says that it expires. Trusted only once it has been reviewed.
fn expiry(token: &str) -> Option<SystemTime> {
    let payload = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let at = Duration::from_secs(claims.exp);
    // Far enough from either end of time to reckon with.
    let sane = NEAR_EXPIRY < at && at < Duration::from_secs(1 << 40);
    sane.then(|| UNIX_EPOCH.checked_add(at)).flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn token(seconds: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let exp = now.as_secs().strict_add_signed(seconds);
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{exp}}}"));
        format!("e30.{claims}.c2ln")
    }

    fn tokens(reviewed: Reviewed) -> (Tokens, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let review: Review = Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            let reviewed = reviewed.clone();
            Box::pin(async { Ok(reviewed) })
        });
        (Tokens::new("ns", "agent", review), asked)
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
    async fn a_token_is_reviewed_once_until_it_nears_its_end() {
        let (tokens, asked) = tokens(good());
        let long = token(3600);
        tokens.admit(&long, "a").await.unwrap();
        tokens.admit(&long, "a").await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let error = tokens.admit(&long, "b").await.unwrap_err();
        assert_eq!(error, "the token is of an agent on node a, not on b");
        for ending in [token(30), "opaque".to_owned()] {
            let before = asked.load(Ordering::Relaxed);
            tokens.admit(&ending, "a").await.unwrap();
            tokens.admit(&ending, "a").await.unwrap();
            assert_eq!(asked.load(Ordering::Relaxed), before + 2, "{ending}");
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
                "does not know the token",
            ),
            (
                Reviewed {
                    audiences: vec![],
                    ..good()
                },
                "does not know the token",
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
                "bound to no node",
            ),
        ] {
            let error = tokens(reviewed)
                .0
                .admit(&token(3600), "a")
                .await
                .unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_api_server_is_not_waited_for() {
        let review: Review = Arc::new(|_| Box::pin(std::future::pending()));
        let tokens = Tokens::new("ns", "agent", review);
        let error = tokens.admit("t", "a").await.unwrap_err();
        assert!(error.contains("within 5s"), "{error}");
    }
}
