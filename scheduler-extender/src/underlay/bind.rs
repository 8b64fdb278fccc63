//! The underlay's part of a bind. First the pod gets a finalizer that names the
//! allocation, then it is allocated: whatever stops this process in between, the
//! pod says what has to be released.

use std::{sync::Arc, time::SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tautline_core::{
    Snapshot, constraints::PodIdentity, model::Service, nodes::NodeSet, planning::NodeVerdict,
};
use tautline_provider_client::{AllocateError, planning_round::provider_name};
use tokio::time::Instant;

use super::{
    Offered,
    leftovers::Stuck,
    mark::{self, Marked, Refusal, Stage},
    need::{Need, need},
    path::Path,
    turns::Turn,
};
use crate::{app::State, pod, wire::BindArgs};

/// How often a change by someone else is followed.
pub(super) const TRIES: usize = 4;

/// Why nothing was bound: the outcome that is counted, and the text.
pub(crate) type Failure = (&'static str, String);

/// What a bind is about.
#[derive(Clone, Copy)]
pub(crate) struct Bind<'a> {
    pub state: &'a State,
    pub snapshot: &'a Snapshot,
    pub pods: &'a Api<Pod>,
    pub args: &'a BindArgs,
    pub subject: &'a PodIdentity,
}

/// Gives back what earlier attempts left on the pod, then allocates what its plan
/// calls for. `None`: the rules alone let it run on the node.
pub(crate) async fn prepare<'a>(
    bind: Bind<'a>,
    governed: bool,
) -> Result<Option<Path<'a>>, Failure> {
    let (state, args) = (bind.state, bind.args);
    let known = bind.snapshot.pod(&args.namespace, &args.pod);
    let carries = known.is_some_and(|p| *p.uid == *args.uid && !p.underlay.is_empty());
    let exists = state
        .discovery
        .underlay(bind.snapshot, &args.namespace)
        .is_some();
    let plan = state.plans.get(&args.uid);
    let mut need = match governed {
        true => need(plan.as_deref(), &args.node, exists),
        false => Need::Nothing,
    };
    if governed && exists && need == Need::Nothing && !plan.is_some_and(|p| p.is_of_this_cycle()) {
        need = Need::Unknown; // The rules may have said otherwise since, to another replica.
    }
    if need == Need::Nothing && !carries {
        return Ok(None);
    }
    let Some(turn) = state.turns.take(&args.uid) else {
        return Err(bind.fail("is still being bound by an earlier request; try again"));
    };
    let mut whole = bind.marked().get().await.map_err(|e| ("failed", e))?;
    match mark::stage(&whole, &args.uid) {
        Stage::Unbound => {}
        // The API server says what there is to say; the allocation is in use.
        Stage::Bound => return Ok(None),
        Stage::Over(why) => return Err(bind.fail(why)),
    }
    let mut stale = mark::ids(&whole);
    if let Need::Offer(offer, _) = &need {
        stale.retain(|id| *id != offer.id);
    }
    if !stale.is_empty() {
        match bind.give_back(&whole, &stale).await {
            Ok(pod) => whole = pod,
            // It stays marked, and perhaps it is why the rules are content.
            Err(Stuck::Whole(error)) if need == Need::Nothing => {
                tracing::warn!(pod = %args.pod, namespace = %args.namespace, %error, "bound with an allocation of an earlier attempt");
                return Ok(None);
            }
            Err(Stuck::Whole(error) | Stuck::Part(error)) => return Err(bind.fail(&error)),
        }
        if governed && exists && need == Need::Nothing {
            need = Need::Unknown; // What was given back may have been what they saw.
        }
    }
    if need == Need::Unknown {
        need = bind.plan(&whole).await?;
    }
    match need {
        Need::Offer(offer, service) => bind.take(turn, whole, offer, &service).await.map(Some),
        _ => Ok(None),
    }
}

impl<'a> Bind<'a> {
    pub(super) fn marked(&self) -> Marked<'a> {
        Marked {
            pods: self.pods,
            args: self.args,
            limit: self.state.config.deadline,
        }
    }

    fn object(&self) -> String {
        format!("pod {}/{}", self.args.namespace, self.args.pod)
    }

    fn fail(&self, why: &str) -> Failure {
        ("failed", format!("{} {why}", self.object()))
    }

    /// Plans for the node alone, as filter would: its plan is not known here.
    async fn plan(&self, whole: &Pod) -> Result<Need, Failure> {
        let nodes: NodeSet = [self.args.node.as_str()].into_iter().collect();
        let question = pod::question_of(whole, self.subject.clone(), nodes);
        let by = Instant::now() + self.state.config.deadline;
        let plan = Arc::new(super::plan(self.state, self.snapshot, question, by).await);
        self.state.explain.push(&plan);
        match plan.plan.verdicts.first() {
            Some(NodeVerdict::Usable { .. }) => Ok(need(Some(&plan), &self.args.node, true)),
            other => {
                let reason = match other {
                    Some(NodeVerdict::Unusable { reason, .. }) => reason,
                    _ => "no plan",
                };
                Err((
                    "refused",
                    format!(
                        "{} has no plan that lets it use node {} ({reason}); it has to be \
                         filtered again",
                        self.object(),
                        self.args.node
                    ),
                ))
            }
        }
    }

    /// An underlay by `namespace/name`, if it still is one.
    pub(super) fn service(&self, named: &str) -> Option<Arc<Service>> {
        let discovery = &self.state.discovery;
        let named = discovery.underlay_named(self.snapshot, named, &self.subject.namespace);
        named.cloned()
    }

    pub(super) async fn release(&self, service: &Service, id: &str) -> Result<(), String> {
        let released = self
            .state
            .discovery
            .release_underlay(self.snapshot, service, id)
            .await;
        let outcome = if released.is_ok() { "released" } else { "left" };
        self.state.metrics.underlay_allocation(outcome);
        released.map_err(|e| e.to_string())
    }

    async fn take(
        self,
        turn: Turn<'a>,
        whole: Pod,
        offer: Offered,
        named: &str,
    ) -> Result<Path<'a>, Failure> {
        let (metrics, node) = (&self.state.metrics, &self.args.node);
        let what = format!(
            "{}: the underlay's offer {} for node {node}",
            self.object(),
            offer.id
        );
        if offer.expired(SystemTime::now()) {
            metrics.underlay_allocation("expired");
            return Err(("refused", format!("{what} has expired; it is asked anew")));
        }
        let Some(service) = self.service(named) else {
            let error = format!("{what}: the Service {named} is no underlay any more");
            return Err(("refused", error));
        };
        // Of an earlier attempt: it may be allocated, whatever is answered now.
        let fresh = !mark::ids(&whole).contains(&offer.id);
        let named = provider_name(&service);
        let pod = self.mark(whole, &offer.id, &named).await?;
        let (bind, id) = (self, offer.id);
        let path = Path::new(bind, service, id, pod, turn);
        let allocated = self
            .state
            .discovery
            .allocate_underlay(self.snapshot, path.service(), path.id())
            .await;
        match allocated {
            Ok(()) => {
                metrics.underlay_allocation("allocated");
                Ok(path)
            }
            Err(AllocateError::Refused(error)) => {
                metrics.underlay_allocation("refused");
                if fresh {
                    path.unmark().await;
                } else {
                    path.undo().await;
                }
                Err(("refused", format!("{what} is refused: {error}")))
            }
            Err(AllocateError::Unknown(error)) => {
                metrics.underlay_allocation("unanswered");
                path.undo().await;
                Err(("failed", format!("{what} is not confirmed: {error}")))
            }
        }
    }

    /// Adds the finalizer to the pod as it was read: with what another attempt has
    /// added meanwhile there would be two allocations.
    async fn mark(&self, mut whole: Pod, id: &str, service: &str) -> Result<Pod, Failure> {
        let marked = self.marked();
        for _ in 0..TRIES {
            if mark::ids(&whole).iter().any(|other| other != id) {
                return Err(self.fail("is being bound by another replica; try again"));
            }
            match marked.add(&whole, id, service).await {
                Ok(pod) => return Ok(pod),
                Err(Refusal::Conflict) => {
                    whole = marked.get().await.map_err(|e| ("failed", e))?;
                    match mark::stage(&whole, &self.args.uid) {
                        Stage::Unbound => {}
                        Stage::Bound => return Err(self.fail("is bound already")),
                        Stage::Over(why) => return Err(self.fail(why)),
                    }
                }
                Err(error) => return Err(self.fail(&format!("takes no finalizer: {error}"))),
            }
        }
        Err(self.fail("takes no finalizer: others change it all the time; try again"))
    }
}
