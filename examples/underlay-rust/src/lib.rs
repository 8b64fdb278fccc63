//! An underlay controller that allocates paths in memory and logs them in a journal. It shows
//! docs/underlay.md: unique ids, an idempotent Allocate, a final Release.

#![warn(missing_docs)]

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tautline_proto::underlay::{
    AllocateRequest, AllocateResponse, DiscoverRequest, DiscoverResponse, MitigateRequest,
    MitigateResponse, NodeRef, Offer, ReleaseRequest,
    underlay_controller_server::{UnderlayController, UnderlayControllerServer},
};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

mod state;

pub use state::{Call, State, Verb};

/// An underlay controller; clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Underlay(Arc<Mutex<State>>);

impl Underlay {
    /// An underlay that offers these nodes at these costs.
    pub fn new<N: Into<String>>(costs: impl IntoIterator<Item = (N, i64)>, ttl: Duration) -> Self {
        Self(Arc::new(Mutex::new(State {
            costs: costs.into_iter().map(|(n, c)| (n.into(), c)).collect(),
            ttl,
            ..State::default()
        })))
    }

    /// Restores the allocations from the journal at `path`, and appends to it from now on: a
    /// line `allocate ID NODE` or `release ID` for each change.
    ///
    /// # Errors
    /// A file that cannot be read or opened.
    pub fn open_journal(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let file = File::options().create(true).append(true).open(path)?;
        for line in fs::read_to_string(path)?.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("allocate"), Some(id), node) => {
                    let node = node.unwrap_or_default().to_owned();
                    state.allocated.insert(id.to_owned(), node);
                }
                (Some("release"), Some(id), _) => {
                    state.allocated.remove(id);
                }
                _ => {}
            }
        }
        state.journal = Some(file);
        Ok(())
    }

    /// The state. The guard must not be held across an await.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes and records a call, then delays its answer if configured.
    async fn call<T>(
        &self,
        verb: Verb,
        act: impl FnOnce(&mut State, &mut Vec<String>) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let (result, delay) = {
            let mut state = self.state();
            let mut ids = Vec::new();
            let result = match state.unavailable.contains(&verb) {
                true => Err(Status::unavailable("unavailable, as configured")),
                false => act(&mut state, &mut ids),
            };
            let ok = result.is_ok();
            state.calls.push(Call { verb, ids, ok });
            (result, state.delays.get(&verb).copied())
        };
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        result.map(Response::new)
    }
}

#[tonic::async_trait]
impl UnderlayController for Underlay {
    async fn discover(
        &self,
        request: Request<DiscoverRequest>,
    ) -> Result<Response<DiscoverResponse>, Status> {
        self.call(Verb::Discover, |state, ids| {
            let request = request.into_inner();
            let end = SystemTime::now() + state.ttl;
            let mut offers = Vec::new();
            for node in &request.eligible_nodes {
                let Some(cost) = state.costs.get(node).copied() else {
                    continue;
                };
                let id = state.new_id();
                state.offered.insert(id.clone(), (node.clone(), end));
                let node = Some(NodeRef {
                    cluster: String::new(),
                    name: node.clone(),
                });
                let expires = Some(end.into());
                offers.push(Offer {
                    id,
                    node,
                    cost,
                    expires,
                });
            }
            state.discovered.push(request);
            let offers = state.offers_override.clone().unwrap_or(offers);
            ids.extend(offers.iter().map(|o| o.id.clone()));
            Ok(DiscoverResponse { offers })
        })
        .await
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let id = request.into_inner().id;
        self.call(Verb::Allocate, |state, ids| {
            ids.push(id.clone());
            state.allocate(&id).map(|()| AllocateResponse {})
        })
        .await
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<()>, Status> {
        let id = request.into_inner().id;
        self.call(Verb::Release, |state, ids| {
            ids.push(id.clone());
            state.release(&id)
        })
        .await
    }

    /// Strengthens the first allocated path, else allocates one for `src`.
    async fn mitigate(
        &self,
        request: Request<MitigateRequest>,
    ) -> Result<Response<MitigateResponse>, Status> {
        self.call(Verb::Mitigate, |state, ids| {
            let request = request.into_inner();
            let allocated = request
                .id
                .iter()
                .find(|id| state.allocated.contains_key(*id));
            let id = match allocated {
                Some(id) => id.clone(),
                None => {
                    let node = request.src.clone().unwrap_or_default().name;
                    let id = state.new_id();
                    state.log(&format!("allocate {id} {node}"))?;
                    state.allocated.insert(id.clone(), node);
                    id
                }
            };
            state.mitigated.push(request);
            ids.push(id.clone());
            Ok(MitigateResponse { id })
        })
        .await
    }
}

/// Serves until the future is dropped.
///
/// # Errors
/// The error that ends the server.
pub async fn serve(
    listener: TcpListener,
    underlay: Underlay,
) -> Result<(), tonic::transport::Error> {
    tonic::transport::Server::builder()
        .add_service(UnderlayControllerServer::new(underlay))
        .serve_with_incoming(TcpIncoming::from(listener))
        .await
}
