//! Two replicas of an allocator with one device and a Lease: the standby forwards calls, a dead
//! holder is replaced after its holds have expired, and a stopped one hands over at once. Two
//! pods never have the device.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tautline_gpu_slice::replicas::{self, Replicas};
use tautline_proto::allocator::{
    ConfirmRequest, ReleaseRequest, ReserveRequest, ReserveResponse,
    allocator_client::AllocatorClient,
};
use tautline_runtime::tasks::Tasks;
use tautline_sdk::{
    Allocator, AllocatorError, MAX_HOLD, ReservationRef, ReservationRequest, Reserved, Server,
    reservations::{Key, Reservations},
    testkit,
};
use tautline_tests::{
    PATIENCE, balancer::Balancer, control_plane::ControlPlane, eventually, objects, root,
};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status, transport::Channel};

use crate::fixed_costs::FixedCosts;

const LEASE: (&str, &str) = ("tautline-system", "tautline-gpu-slice");
const SILENT: Duration = Duration::from_secs(3);

/// The device as the API server would show it, and all grants.
#[derive(Clone, Default)]
struct GrantLog(Arc<Mutex<DeviceState>>);

#[derive(Default)]
struct DeviceState {
    /// The pod that is bound to the node with the device.
    bound: Option<String>,
    grants: Vec<Grant>,
}

#[derive(Clone, Debug)]
struct Grant {
    by: &'static str,
    uid: String,
    from: Instant,
    until: Instant,
}

impl GrantLog {
    fn granted(&self) -> Vec<Grant> {
        self.0.lock().unwrap().grants.clone()
    }

    /// Two grants of the device never overlap.
    fn check(&self) {
        let grants = self.granted();
        for (i, a) in grants.iter().enumerate() {
            for b in &grants[i + 1..] {
                let apart = a.uid == b.uid || b.from >= a.until || a.from >= b.until;
                assert!(apart, "granted twice:\n{a:?}\n{b:?}");
            }
        }
    }
}

/// One device, with reservations of its own as in a process.
struct OneDevice {
    name: &'static str,
    reservations: Mutex<Reservations<()>>,
    grants_log: GrantLog,
}

impl Allocator for OneDevice {
    async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
        let (now, uid, node) = (Instant::now(), request.uid.clone(), request.node.clone());
        let mut shown = self.grants_log.0.lock().unwrap();
        let bound = shown.bound.as_ref().is_some_and(|b| *b != uid);
        let key = Key {
            uid: request.uid,
            node: request.node,
            rule: request.rule,
        };
        let mut reservations = self.reservations.lock().unwrap();
        let granted = reservations.reserve(now, key, request.hold, |reservations| {
            match bound || reservations.grants_on_node(now, &node).next().is_some() {
                true => Err(AllocatorError::Exhausted("taken".into())),
                false => Ok(()),
            }
        })?;
        let until = granted.until.unwrap_or(now);
        let (by, from) = (self.name, now);
        match shown.grants.last_mut() {
            Some(last) if last.by == by && last.uid == uid && now < last.until => {
                last.until = until;
            }
            _ => shown.grants.push(Grant {
                by,
                uid,
                from,
                until,
            }),
        }
        Ok(Reserved {
            id: granted.id,
            ..Reserved::default()
        })
    }

    async fn confirm(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        let mut reservations = self.reservations.lock().unwrap();
        reservations
            .confirm(Instant::now(), &request.id)
            .map_err(|e| AllocatorError::Expired(e.to_string()))
    }

    async fn release(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        let now = Instant::now();
        if self
            .reservations
            .lock()
            .unwrap()
            .release(now, &request.id)
            .is_some()
        {
            // There is one device, so the newest grant is the released one.
            let mut shown = self.grants_log.0.lock().unwrap();
            if let Some(last) = shown.grants.last_mut() {
                last.until = now;
            }
        }
        Ok(())
    }
}

/// A replica in a runtime of its own, which ends as a process does.
struct Replica {
    address: SocketAddr,
    stop: CancellationToken,
    done: JoinHandle<anyhow::Result<()>>,
    runtime: Option<Runtime>,
}

impl Replica {
    async fn start(kubeconfig: PathBuf, name: &'static str, grants_log: &GrantLog) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (send_address, address) = oneshot::channel();
        let (stop, grants_log) = (CancellationToken::new(), grants_log.clone());
        let until = stop.clone().cancelled_owned();
        let done = runtime.spawn(async move {
            let client = client(&kubeconfig).await?;
            let mut server = Server::bind(testkit::loopback()).await?;
            let (mut tasks, address) = (Tasks::default(), server.address());
            let started = format!("{name}_{:?}", Instant::now());
            let reservations = Mutex::new(Reservations::new(&started));
            let inner = Arc::new(OneDevice {
                name,
                reservations,
                grants_log,
            });
            let config = replicas::Config::new(LEASE.0, LEASE.1, &started, &address.to_string())
                .with_duration(SILENT);
            let allocator = Replicas::of_lease(inner, config, client, &mut server, &mut tasks)?;
            server.spawn_with_allocator(Arc::new(FixedCosts::default()), allocator, &mut tasks)?;
            _ = send_address.send(address);
            tasks.run(until).await
        });
        Self {
            address: address.await.unwrap(),
            stop,
            done,
            runtime: Some(runtime),
        }
    }

    /// Ends as in a crash.
    fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

#[derive(Clone)]
struct Caller(AllocatorClient<Channel>);

impl Caller {
    fn of(address: SocketAddr) -> Self {
        let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
        Self(AllocatorClient::new(endpoint.connect_lazy()))
    }

    async fn reserve(&self, uid: &str) -> Result<ReserveResponse, Status> {
        let request = ReserveRequest {
            uid: uid.into(),
            node: "n1".into(),
            hold_millis: 10_000,
            ..ReserveRequest::default()
        };
        Ok(self.0.clone().reserve(request).await?.into_inner())
    }

    /// Retries until it is granted; returns its id, and the refusals before.
    async fn granted(&self, uid: &str) -> (String, Vec<Status>) {
        let refusals = Mutex::new(Vec::new());
        let attempt = async || match self.reserve(uid).await {
            Ok(answer) => Some(answer.id),
            Err(status) => {
                refusals.lock().unwrap().push(status);
                None
            }
        };
        let what = format!("{uid} is granted the device");
        let id = eventually(&what, PATIENCE, attempt, async || {
            format!("{:?}", refusals.lock().unwrap().last())
        })
        .await;
        (id, refusals.into_inner().unwrap())
    }

    async fn confirm(&self, id: &str) -> Result<(), Status> {
        let request = ConfirmRequest { id: id.into() };
        self.0.clone().confirm(request).await.map(drop)
    }

    async fn release(&self, id: &str) -> Result<(), Status> {
        let request = ReleaseRequest { id: id.into() };
        self.0.clone().release(request).await.map(drop)
    }
}

#[tokio::test]
async fn replicas_never_grant_one_device_twice() {
    let plane = ControlPlane::start().await.unwrap();
    objects::apply_kustomization_except(&plane.client, &root().join("deploy"), &["Deployment"])
        .await
        .unwrap();
    // With the provider's account, so its role is tested too.
    let config = plane.kubeconfig("gpu-slice");
    let grants_log = GrantLog::default();

    // A Lease without a holder: an earlier one may have run without a Lease.
    let a = Replica::start(config.clone(), "a", &grants_log).await;
    let started = Instant::now();
    let (id, refusals) = Caller::of(a.address).granted("u0").await;
    println!("the first grant {:?} after the start", started.elapsed());
    assert!(
        refusals.iter().all(|s| s.code() == Code::Unavailable),
        "{refusals:?}"
    );
    assert!(started.elapsed() >= MAX_HOLD);
    Caller::of(a.address).release(&id).await.unwrap();

    let b = Replica::start(config.clone(), "b", &grants_log).await;
    passed_on(&b, &grants_log).await;
    let balancer = Balancer::start(vec![a.address, b.address]).await.unwrap();
    killed(a, &balancer, &grants_log).await;
    let a = Replica::start(config, "a", &grants_log).await;
    handed_over(&a, b, &grants_log).await;
    grants_log.check();
}

/// b forwards calls to a, and does not forward a forwarded call.
async fn passed_on(b: &Replica, grants_log: &GrantLog) {
    let caller = Caller::of(b.address);
    let (id, _) = caller.granted("u1").await;
    assert_eq!(grants_log.granted().last().unwrap().by, "a");
    let taken = caller.reserve("u2").await.unwrap_err();
    assert_eq!(
        (taken.code(), taken.message()),
        (Code::FailedPrecondition, "taken")
    );
    caller.release(&id).await.unwrap();
    let unknown = caller.confirm("never-1").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let mut marked = Request::new(ReserveRequest {
        uid: "u2".into(),
        node: "n1".into(),
        ..ReserveRequest::default()
    });
    tautline_sdk::add_forwarded_metadata(&mut marked);
    let status = caller.0.clone().reserve(marked).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("does not hold the Lease"),
        "{status}"
    );
    assert_eq!(grants_log.granted().len(), 2, "{:?}", grants_log.granted());
}

/// Several callers reserve all the time, and a dies while one of them has the device.
async fn killed(a: Replica, balancer: &Balancer, grants_log: &GrantLog) {
    let stop_all = CancellationToken::new();
    let callers: Vec<_> = ["v0", "v1", "v2", "v3"]
        .map(|uid| {
            let (address, stop) = (balancer.address, stop_all.clone());
            tokio::spawn(async move {
                let mut refusals = 0;
                while !stop.is_cancelled() {
                    // A connection for each, as from several extenders.
                    if Caller::of(address).reserve(uid).await.is_err() {
                        refusals += 1;
                    }
                    tokio::task::yield_now().await;
                }
                refusals
            })
        })
        .into_iter()
        .collect();
    let one = async || {
        grants_log
            .granted()
            .iter()
            .any(|g| g.uid.starts_with('v'))
            .then_some(())
    };
    eventually("one has the device", PATIENCE, one, async || "").await;
    a.kill();
    let killed = Instant::now();
    let by_b = async || grants_log.granted().iter().find(|g| g.by == "b").cloned();
    let first = eventually("b grants", PATIENCE, by_b, async || {
        format!("{:?}", grants_log.granted())
    })
    .await;
    println!(
        "b's first grant {:?} after a was killed",
        first.from - killed
    );
    stop_all.cancel();
    for caller in callers {
        println!("refused {} times meanwhile", caller.await.unwrap());
    }
    grants_log.check();
    let last = grants_log
        .granted()
        .into_iter()
        .rfind(|g| g.by == "a")
        .unwrap();
    assert!(first.from >= killed + MAX_HOLD, "{last:?} {first:?}");
}

/// b is stopped while u5 is about to be bound: no replica grants until it is, then a at once.
async fn handed_over(a: &Replica, b: Replica, grants_log: &GrantLog) {
    let via_a = Caller::of(a.address);
    let (id, _) = via_a.granted("u5").await;
    assert_eq!(grants_log.granted().last().unwrap().by, "b");
    b.stop.cancel();
    let refused = async || {
        let status = via_a.reserve("u6").await.err()?;
        (status.code() == Code::Unavailable).then_some(())
    };
    eventually("b grants no more", PATIENCE, refused, async || "").await;
    // It still answers pending calls.
    assert!(!b.done.is_finished());
    grants_log.0.lock().unwrap().bound = Some("u5".into());
    via_a.confirm(&id).await.unwrap();
    let confirmed = Instant::now();
    grants_log
        .0
        .lock()
        .unwrap()
        .grants
        .last_mut()
        .unwrap()
        .until = confirmed;
    grants_log.0.lock().unwrap().bound = None;
    via_a.granted("u6").await;
    assert_eq!(grants_log.granted().last().unwrap().by, "a");
    let took = confirmed.elapsed();
    println!("a's first grant {took:?} after the last of b was confirmed");
    // Without a hand-over it would wait for the Lease's end and then for MAX_HOLD.
    assert!(took < MAX_HOLD, "{took:?} is no hand-over");
    let mut b = b;
    let ended = tokio::time::timeout(PATIENCE, &mut b.done).await;
    ended.expect("b ends").unwrap().unwrap();
}
