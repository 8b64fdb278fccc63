//! Forwards Reserve, Confirm and Release to the replica that holds the Lease, over gRPC with
//! optional TLS and a deadline of 400 ms.

use std::{io, path::Path, sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, family::Family};
use tautline_proto::allocator::{
    ConfirmRequest, ReleaseRequest, ReserveRequest, allocator_client::AllocatorClient,
};
use tautline_runtime::tls::{ClientFiles, FileChanges};
use tautline_sdk::{
    AllocatorError, ReservationRef, ReservationRequest, Reserved, add_forwarded_metadata,
};
use tonic::{
    Request, Response, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::ForwardOutcome;

/// The deadline of a call to the holder. It is below the extender's provider deadline of 500 ms, so
/// that the extender gets the reason.
const DEADLINE: Duration = Duration::from_millis(400);

type ForwardedCalls = Family<ForwardOutcome, Counter>;

/// TLS of calls to the replica that holds the Lease.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// The CA of the replicas and this replica's client certificate, which are reloaded when they
    /// change.
    pub files: ClientFiles,
    /// The name that the server certificate of each replica must have.
    pub name: String,
}

pub(super) struct Peers {
    tls: Option<PeerTls>,
    current: Option<Arc<ClientTlsConfig>>,
    forwarded: ForwardedCalls,
}

impl Peers {
    pub(super) fn new(tls: Option<PeerTls>, forwarded: ForwardedCalls) -> io::Result<Self> {
        let current = tls.as_ref().map(read).transpose()?;
        Ok(Self {
            tls,
            current: current.map(Arc::new),
            forwarded,
        })
    }

    pub(super) fn watch_files(&self) -> FileChanges {
        let mut paths = Vec::new();
        if let Some(tls) = &self.tls {
            paths.extend(tls.files.ca.clone());
            if let Some((cert, key)) = &tls.files.identity {
                paths.extend([cert.clone(), key.clone()]);
            }
        }
        FileChanges::new(paths)
    }

    /// Reads the files again; the next lookup of the holder makes a new channel.
    pub(super) fn reload(&mut self) {
        match self.tls.as_ref().map(read).transpose() {
            Ok(tls) => self.current = tls.map(Arc::new),
            Err(error) => tracing::warn!(%error, "TLS files between replicas do not load"),
        }
    }

    pub(super) fn connect(&self, address: &str, known: Option<&Arc<Peer>>) -> Option<Arc<Peer>> {
        let tls = self.current.as_ref();
        let same = |p: &&Arc<Peer>| {
            p.address == address && p.tls.as_ref().map(Arc::as_ptr) == tls.map(Arc::as_ptr)
        };
        if let Some(known) = known.filter(same) {
            return Some(Arc::clone(known));
        }
        match channel(address, tls.map(|tls| &**tls)) {
            Ok(channel) => {
                tracing::info!(%address, "another replica reserves");
                Some(Arc::new(Peer {
                    address: address.to_owned(),
                    client: AllocatorClient::new(channel),
                    tls: tls.cloned(),
                    forwarded: self.forwarded.clone(),
                }))
            }
            Err(error) => {
                tracing::warn!(%address, %error, "the Lease's holderIdentity has no usable address");
                None
            }
        }
    }
}

fn read(tls: &PeerTls) -> io::Result<ClientTlsConfig> {
    let read = |path: &Path| {
        std::fs::read(path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    };
    let mut config = ClientTlsConfig::new().domain_name(&tls.name);
    if let Some(ca) = &tls.files.ca {
        config = config.ca_certificate(Certificate::from_pem(read(ca)?));
    }
    if let Some((cert, key)) = &tls.files.identity {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(config)
}

fn channel(
    address: &str,
    tls: Option<&ClientTlsConfig>,
) -> Result<Channel, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
        .connect_timeout(DEADLINE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(3))
        .keep_alive_while_idle(true);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls.clone())?;
    }
    Ok(endpoint.connect_lazy())
}

pub(super) struct Peer {
    address: String,
    client: AllocatorClient<Channel>,
    tls: Option<Arc<ClientTlsConfig>>,
    forwarded: ForwardedCalls,
}

impl Peer {
    pub(super) async fn reserve(
        &self,
        request: ReservationRequest,
    ) -> Result<Reserved, AllocatorError> {
        let request = forwarded_request(ReserveRequest::from(request));
        let answer = self.within(self.client.clone().reserve(request)).await;
        answer.map(Into::into)
    }

    pub(super) async fn confirm(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        let request = forwarded_request(ConfirmRequest { id: request.id });
        let answer = self.within(self.client.clone().confirm(request)).await;
        answer.map(drop)
    }

    pub(super) async fn release(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        let request = forwarded_request(ReleaseRequest { id: request.id });
        let answer = self.within(self.client.clone().release(request)).await;
        answer.map(drop)
    }

    async fn within<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AllocatorError> {
        let answer = match tokio::time::timeout(DEADLINE, call).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(Into::into),
            Err(_) => Err(AllocatorError::Unavailable(format!(
                "no answer within {DEADLINE:?}"
            ))),
        };
        let outcome = match &answer {
            Ok(_) => "answered",
            Err(AllocatorError::Unavailable(_) | AllocatorError::Internal(_)) => "failed",
            Err(_) => "refused",
        };
        self.forwarded
            .get_or_create(&ForwardOutcome { outcome })
            .inc();
        answer.map_err(|error| match error {
            AllocatorError::Unavailable(what) => {
                AllocatorError::Unavailable(format!("the replica at {}: {what}", self.address))
            }
            other => other,
        })
    }
}

fn forwarded_request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    add_forwarded_metadata(&mut request);
    request
}

#[cfg(test)]
mod tests {
    use tautline_runtime::{
        tasks::Tasks,
        tls::{ClientFiles, ServerFiles},
    };
    use tautline_sdk::{
        Allocator, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError,
        RuleProvider, Server, testkit,
    };

    use super::*;

    struct Echo;

    impl RuleProvider for Echo {
        async fn endpoint_cost(&self, _: CostRequest) -> Result<CostAnswer, ProviderError> {
            Ok(CostAnswer::default())
        }
        async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
            Ok(Evaluation::default())
        }
    }

    impl Allocator for Echo {
        async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
            let id = format!("{} {}", request.uid, request.forwarded);
            Ok(Reserved {
                id,
                ..Reserved::default()
            })
        }
        async fn confirm(&self, request: ReservationRef) -> Result<(), AllocatorError> {
            Err(AllocatorError::Expired(request.id))
        }
        async fn release(&self, request: ReservationRef) -> Result<(), AllocatorError> {
            assert!(request.forwarded);
            Ok(())
        }
    }

    fn reservation_request() -> ReservationRequest {
        ReservationRequest {
            uid: "u".into(),
            node: "n".into(),
            ..ReservationRequest::default()
        }
    }

    #[tokio::test]
    async fn peer_uses_mutual_tls_and_the_certificate_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let name = "p.ns.svc".to_owned();
        let made = rcgen::generate_simple_self_signed([name.clone()]).unwrap();
        std::fs::write(at("crt"), made.cert.pem()).unwrap();
        std::fs::write(at("key"), made.signing_key.serialize_pem()).unwrap();
        let config = tautline_sdk::Config {
            tls: Some(ServerFiles {
                cert: at("crt"),
                key: at("key"),
                client_ca: Some(at("crt")),
                alpn: vec![],
            }),
            ..testkit::loopback()
        };
        let server = Server::bind(config).await.unwrap();
        let (address, mut tasks) = (server.address().to_string(), Tasks::default());
        let echo = Arc::new(Echo);
        server
            .spawn_with_allocator(Arc::clone(&echo), echo, &mut tasks)
            .unwrap();
        let stop = tasks.stop_token();
        let running = tokio::spawn(tasks.run(std::future::pending()));

        let peers = |identity: bool| {
            let files = ClientFiles {
                ca: Some(at("crt")),
                identity: identity.then(|| (at("crt"), at("key"))),
            };
            let name = name.clone();
            Peers::new(Some(PeerTls { files, name }), Family::default()).unwrap()
        };
        let mut known = peers(true);
        let peer = known.connect(&address, None).unwrap();
        assert_eq!(
            peer.reserve(reservation_request()).await.unwrap().id,
            "u true"
        );
        let gone = peer.confirm(ReservationRef::default()).await.unwrap_err();
        assert!(matches!(gone, AllocatorError::Expired(_)), "{gone:?}");
        peer.release(ReservationRef::default()).await.unwrap();

        let same = known.connect(&address, Some(&peer)).unwrap();
        assert!(Arc::ptr_eq(&same, &peer));
        known.reload();
        let new = known.connect(&address, Some(&peer)).unwrap();
        assert!(!Arc::ptr_eq(&new, &peer));
        new.reserve(reservation_request()).await.unwrap();

        let stranger = peers(false).connect(&address, None).unwrap();
        let refused = stranger
            .reserve(reservation_request())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.starts_with(&format!("not now: the replica at {address}: ")),
            "{refused}"
        );
        assert!(known.connect("not an address", None).is_none());
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}
