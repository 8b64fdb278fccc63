//! Sessions with a scripted API server.

use std::{collections::BTreeMap, convert::Infallible, future::pending};

use bytes::Bytes;
use http_body_util::Full;
use kube::client::Body;
use serde_json::{Value, json};
use tautline_core::remote::RemoteState;
use tokio::{task::JoinHandle, time::timeout};

use super::*;

const GRACE: Duration = Duration::from_secs(3_600);

/// The answers of the API server; `None`: none comes.
struct Answers {
    version: Option<u16>,
    /// The answers to lists, by namespace.
    lists: BTreeMap<&'static str, u16>,
    watches: Option<u16>,
    /// The number of pods in each namespace.
    pods: usize,
}

impl Answers {
    fn answer(&self, path: &str, query: &str) -> Option<(u16, Value)> {
        let refused = |code: u16| json!({"status": "Failure", "message": "no", "code": code});
        if path == "/version" {
            return self.version.map(|code| match code {
                200 => (code, json!({"gitVersion": "v1.36.0"})),
                code => (code, refused(code)),
            });
        }
        if query.contains("watch=true") {
            return self.watches.map(|code| (code, refused(code)));
        }
        let namespace = path.split('/').nth(4).unwrap_or_default();
        let code = self.lists.get(namespace).copied().unwrap_or(200);
        if code != 200 {
            return Some((code, refused(code)));
        }
        let pod = |i| {
            json!({"metadata": {"name": format!("db-{i}"), "namespace": namespace},
                   "status": {"hostIP": "10.1.0.7"}})
        };
        let pods: Vec<Value> = (0..self.pods).map(pod).collect();
        let list = json!({"kind": "PodList", "apiVersion": "v1",
                          "metadata": {"resourceVersion": "1"}, "items": pods});
        Some((code, list))
    }
}

/// The contact with a cluster whose pods in `shop` and `bank` are watched.
struct East {
    answers: Arc<Mutex<Answers>>,
    table: Table,
    namespaces: watch::Sender<Namespaces>,
    session: JoinHandle<Lost>,
}

impl East {
    fn start(lists: &[(&'static str, u16)]) -> Self {
        let answers = Arc::new(Mutex::new(Answers {
            version: Some(200),
            lists: lists.iter().copied().collect(),
            watches: None,
            pods: 1,
        }));
        let server = Arc::clone(&answers);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let answer = server.lock().answer(request.uri().path(), query);
            async move {
                let Some((code, body)) = answer else {
                    return pending().await;
                };
                let body = Full::new(Bytes::from(body.to_string()));
                let answer = http::Response::builder().status(code);
                Ok::<_, Infallible>(answer.body(body).unwrap())
            }
        });
        let client = Client::new(service, "default");
        let table = Table::default();
        let scopes = ["bank", "shop"].map(|namespace| Scope {
            cluster: "east".into(),
            namespace: namespace.into(),
        });
        table.lock().want(&scopes.into());
        table.lock().set_grace("east", GRACE);
        let session = Session {
            cluster: "east".into(),
            access: Arc::new(Access {
                kubeconfig: Vec::new(),
                node_port: 5310,
            }),
            table: Arc::clone(&table),
        };
        let both = ["bank", "shop"].map(Arc::<str>::from);
        let (namespaces, mut receiver) = watch::channel(Namespaces::from(both));
        let session = tokio::spawn(async move { session.watch(&client, &mut receiver).await });
        Self {
            answers,
            table,
            namespaces,
            session,
        }
    }

    /// Waits until the state of a namespace has changed to this one, with so many pods, and returns
    /// the place of the first.
    async fn wait_for(&self, namespace: &str, state: RemoteState, pods: usize) -> Option<Arc<str>> {
        let mut seen = Vec::new();
        for _ in 0..2_000 {
            let changes = self.table.lock().changes(Instant::now().into_std());
            for now in changes {
                if &*now.scope.namespace != namespace {
                    continue;
                }
                seen.push((now.state, now.pods.len()));
                if (now.state, now.pods.len()) == (state, pods) {
                    return now.pods.values().next()?.place.clone();
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{namespace} is not {state:?}, but {seen:?}");
    }

    async fn lost(self) -> Lost {
        let lost = timeout(Duration::from_secs(60), self.session).await;
        lost.unwrap().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn listed_pods_are_current_until_heartbeats_fail() {
    for (answer, fault) in [
        (None, Fault::Unreachable),
        (Some(500), Fault::Unreachable),
        (Some(401), Fault::Unauthorized),
        (Some(403), Fault::Forbidden),
    ] {
        let mut east = East::start(&[]);
        let place = east.wait_for("shop", RemoteState::Current, 1).await;
        assert_eq!(place.as_deref(), Some("10.1.0.7:5310"));
        let hour = Duration::from_secs(3_600);
        assert!(timeout(hour, &mut east.session).await.is_err());
        east.answers.lock().version = Some(429);
        assert!(timeout(hour, &mut east.session).await.is_err());
        east.answers.lock().version = answer;
        let lost = east.lost().await;
        assert_eq!(lost.fault, fault, "{}", lost.error);
    }
}

#[tokio::test(start_paused = true)]
async fn heartbeats_prolong_the_contact() {
    let east = East::start(&[]);
    east.wait_for("shop", RemoteState::Current, 1).await;
    sleep(2 * GRACE).await;
    east.table.lock().lost("east", Fault::Unreachable);
    let known = RemoteState::LastKnown(Fault::Unreachable);
    east.wait_for("shop", known, 1).await;
}

#[tokio::test(start_paused = true)]
async fn refusal_in_one_namespace_leaves_the_others() {
    let east = East::start(&[("bank", 403)]);
    let forbidden = RemoteState::Unavailable(Fault::Forbidden);
    east.wait_for("bank", forbidden, 0).await;
    sleep(Duration::from_secs(600)).await;
    assert!(!east.session.is_finished());
    east.answers.lock().lists.clear();
    east.wait_for("bank", RemoteState::Current, 1).await;

    let east = East::start(&[("bank", 403)]);
    east.wait_for("shop", RemoteState::Current, 1).await;
    assert!(!east.session.is_finished());
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_end_the_session() {
    let lost = East::start(&[("bank", 401)]).lost().await;
    assert_eq!(lost.fault, Fault::Unauthorized, "{}", lost.error);
}

#[tokio::test(start_paused = true)]
async fn refused_watch_lists_again() {
    let east = East::start(&[]);
    east.answers.lock().watches = Some(403);
    let known = RemoteState::LastKnown(Fault::Forbidden);
    east.wait_for("shop", known, 1).await;
    {
        let mut answers = east.answers.lock();
        (answers.watches, answers.pods) = (None, 2);
    }
    east.wait_for("shop", RemoteState::Current, 2).await;
}

#[tokio::test(start_paused = true)]
async fn failed_list_is_a_fault_of_its_namespace() {
    let east = East::start(&[("bank", 500)]);
    let fault = RemoteState::Unavailable(Fault::Unreachable);
    east.wait_for("bank", fault, 0).await;
    east.answers.lock().lists.clear();
    east.wait_for("bank", RemoteState::Current, 1).await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_are_named_later_are_watched() {
    let east = East::start(&[]);
    east.namespaces.send_replace(Namespaces::new());
    east.wait_for("shop", RemoteState::Unavailable(Fault::Connecting), 0)
        .await;
    east.namespaces
        .send_replace(Namespaces::from(["shop".into()]));
    east.wait_for("shop", RemoteState::Current, 1).await;
}

#[tokio::test(start_paused = true)]
async fn huge_namespace_is_not_held() {
    let east = East::start(&[]);
    east.answers.lock().pods = MAX_HELD_PODS + 1;
    let fault = RemoteState::Unavailable(Fault::TooManyPods);
    east.wait_for("shop", fault, 0).await;
    east.answers.lock().pods = 1;
    sleep(RECOUNT).await;
    east.wait_for("shop", RemoteState::Current, 1).await;
}

#[tokio::test(start_paused = true)]
async fn waits_double_until_an_attempt_lasts() {
    let mut attempts = Attempts::default();
    let mut waits = Vec::new();
    for _ in 0..7 {
        let began = Instant::now();
        assert_eq!(attempts.fail(began, Fault::Unreachable), waits.is_empty());
        attempts.wait().await;
        waits.push(began.elapsed().as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert!(attempts.fail(Instant::now(), Fault::Unauthorized));
    let began = Instant::now();
    sleep(LONGEST_RETRY * 2).await;
    assert!(attempts.fail(began, Fault::Unauthorized));
    assert_eq!(attempts.wait, FIRST_RETRY);
}
