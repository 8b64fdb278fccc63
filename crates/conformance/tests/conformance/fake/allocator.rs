//! Reservations at bind.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tautline_proto::allocator::{
    ConfirmRequest, ConfirmResponse, ReleaseRequest, ReleaseResponse, ReserveRequest,
    ReserveResponse, allocator_server::Allocator,
};
use tautline_sdk::{
    Rule,
    reservations::{Key, Reservations},
};
use tonic::{Request, Response, Status, async_trait};

use super::{Fake, Fault, NODES, seats};

impl Fake {
    fn must_confirm(&self) -> Result<(), Status> {
        match self.fault {
            Fault::ReservesAlone => Err(Status::unimplemented("not written yet")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Allocator for Fake {
    async fn reserve(
        &self,
        request: Request<ReserveRequest>,
    ) -> Result<Response<ReserveResponse>, Status> {
        let request = request.into_inner();
        seats(request.rule.as_ref())?;
        let mut state = self.state.lock().unwrap();
        if !NODES.contains(&request.node.as_str()) || request.node == "full" {
            return Err(Status::failed_precondition("no seat is free"));
        }
        let rule = request.rule.unwrap_or_default();
        let mut key = Key {
            uid: request.uid,
            node: request.node.clone(),
            rule: Rule {
                name: rule.name,
                request: rule.request,
                limit: rule.limit,
            },
        };
        if self.fault == Fault::ReserveIsNotIdempotent {
            key.uid += &self.questions.fetch_add(1, Ordering::SeqCst).to_string();
        }
        let uid = key.uid.clone();
        let hold = match self.fault {
            Fault::HoldNeverEnds => Duration::from_secs(3_600),
            _ => Duration::from_millis(request.hold_millis.unsigned_abs()),
        };
        let now = Instant::now();
        let grant = |_: &Reservations<()>| Ok::<_, Status>(());
        let reserved = state.reservations.reserve(now, key, hold, grant)?;
        Ok(Response::new(ReserveResponse {
            id: match self.fault {
                Fault::ReusesIds => format!("{}/{uid}", request.node),
                _ => reserved.id,
            },
            annotations: [("example.com/seat".to_owned(), request.node)].into(),
            expires: None,
        }))
    }

    async fn confirm(
        &self,
        request: Request<ConfirmRequest>,
    ) -> Result<Response<ConfirmResponse>, Status> {
        self.must_confirm()?;
        let id = request.into_inner().id;
        let mut state = self.state.lock().unwrap();
        match state.reservations.confirm(Instant::now(), &id) {
            Err(error) if self.fault != Fault::ConfirmsAnything => {
                Err(Status::not_found(error.to_string()))
            }
            _ => Ok(Response::new(ConfirmResponse {})),
        }
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.must_confirm()?;
        let id = request.into_inner().id;
        let mut state = self.state.lock().unwrap();
        state.reservations.release(Instant::now(), &id);
        Ok(Response::new(ReleaseResponse {}))
    }
}
