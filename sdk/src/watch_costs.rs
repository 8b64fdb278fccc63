//! Serves WatchCosts: asks the provider for the costs of open questions whenever they change, and
//! sends them.

mod questions;

use std::{
    future::ready,
    mem,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use prost::Message;
use tautline_proto::ruleprovider as wire;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use self::questions::Questions;
use crate::{
    CostAnswer, CostChanges, CostRequest, RuleProvider, gate::caught, service::RuleService,
};

/// The time between two signs of life.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The deadline that a provider receives: the costs of other questions wait.
const DEADLINE: Duration = Duration::from_millis(200);
/// The time after which a question counts as failed. Callers give up a silent stream after 2 s.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// The size at which a message is sent, in bytes.
const FULL_BYTES: usize = 1 << 20;
/// The maximum number of messages that are read before the next answer.
const MAX_READ: usize = 256;
/// The time after a broken stream in which its pods still count, since their Bindings may be in
/// progress.
const BINDING_GRACE: Duration = Duration::from_secs(2);

type Updates = ReceiverStream<Result<wire::CostUpdate, Status>>;

impl<P: RuleProvider> RuleService<Arc<P>> {
    pub(crate) async fn watch_costs(
        &self,
        request: Request<Streaming<wire::CostWatch>>,
    ) -> Result<Response<Updates>, Status> {
        let Some(changes) = self.provider.changes().cloned() else {
            return Err(Status::unimplemented(
                "this provider is asked by EndpointCost",
            ));
        };
        self.gate.ready()?;
        let address = request.remote_addr().map(|address| address.ip());
        let permit = self.streams.admit(address)?;
        let (out, updates) = mpsc::channel(1);
        let stream = CostStream {
            service: self.clone(),
            changes,
            out,
            questions: Questions::default(),
            id: Arc::downgrade(&permit),
            sent_through: 0,
            last_sent: Instant::now(),
        };
        tokio::spawn(stream.run(request.into_inner(), permit));
        Ok(Response::new(ReceiverStream::new(updates)))
    }
}

struct CostStream<P> {
    service: RuleService<Arc<P>>,
    changes: CostChanges,
    out: mpsc::Sender<Result<wire::CostUpdate, Status>>,
    questions: Questions,
    /// The stream's permit, whose address identifies the stream.
    id: Weak<()>,
    sent_through: u64,
    last_sent: Instant,
}

impl<P: RuleProvider> CostStream<P> {
    async fn run(mut self, messages: Streaming<wire::CostWatch>, permit: Arc<()>) {
        if let Err(status) = self.follow(messages).await {
            _ = timeout(BEAT_INTERVAL, self.out.send(Err(status))).await;
        }
        drop(permit);
        let pods: Vec<String> = {
            let placed = self.service.streams.placed.lock();
            let own = placed.iter().filter(|(_, by)| by.ptr_eq(&self.id));
            own.map(|(uid, _)| uid.clone()).collect()
        };
        if pods.is_empty() {
            return;
        }
        sleep(BINDING_GRACE).await;
        for uid in pods {
            _ = self.end(&uid).await;
        }
    }

    /// Handles the caller's messages and sends costs; ends without an error when the caller has
    /// gone.
    async fn follow(&mut self, mut messages: Streaming<wire::CostWatch>) -> Result<(), Status> {
        let (mut notice, mut mark) = (self.changes.subscribe(), 0);
        _ = self.changes.since(&mut mark);
        let mut beats = interval(BEAT_INTERVAL);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = self.service.stop.clone();
        let mut read = 0;
        loop {
            let mut is_beat = false;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Status::unavailable("the provider stops")),
                message = messages.message(), if read < MAX_READ => match message? {
                    Some(message) => {
                        self.apply(message).await?;
                        read += 1;
                        continue;
                    }
                    None => return Ok(()),
                },
                _ = beats.tick() => {
                    is_beat = true;
                    self.questions.retry();
                }
                () = ready(()), if read > 0 => {}
                _ = notice.changed() => {}
                () = self.out.closed() => return Ok(()),
            }
            read = 0;
            if self.service.provider.changes().is_none() {
                return Err(Status::failed_precondition(
                    "this replica no longer sends costs",
                ));
            }
            // Read before the answers are made: a later change is sent with the next answers.
            let changed = self.changes.since(&mut mark);
            self.questions.change(changed.as_ref());
            if !self.send_due(is_beat).await {
                return Ok(());
            }
        }
    }

    async fn apply(&mut self, mut message: wire::CostWatch) -> Result<(), Status> {
        let ended = mem::take(&mut message.ended_pods);
        let placed = mem::take(&mut message.placed_pods);
        self.questions.apply(message)?;
        for uid in ended {
            self.end(&uid).await?;
        }
        for pod in placed {
            let uid = pod.workload.as_ref().map_or("", |w| &w.uid).to_owned();
            let by = &self.service.streams.placed;
            by.lock().insert(uid, self.id.clone());
            let placing = async { self.service.provider.placed(pod.into()) };
            caught("placed()", placing).await?;
        }
        Ok(())
    }

    /// Ends a pod that this stream was the last to place.
    async fn end(&self, uid: &str) -> Result<(), Status> {
        {
            let mut placed = self.service.streams.placed.lock();
            if !placed.get(uid).is_some_and(|by| by.ptr_eq(&self.id)) {
                return Ok(());
            }
            placed.remove(uid);
        }
        caught("ended()", async { self.service.provider.ended(uid) }).await
    }

    /// Sends the costs and failures that are due; returns whether the caller still reads.
    async fn send_due(&mut self, is_beat: bool) -> bool {
        let mut update = wire::CostUpdate {
            failures: mem::take(&mut self.questions.refused),
            ..wire::CostUpdate::default()
        };
        let mut bytes = 0;
        while let Some((id, nodes, request)) = self.questions.next_due() {
            match self.ask(request).await {
                Ok(answer) => {
                    if let Some(costs) = self.questions.costs(id, &nodes, &answer) {
                        bytes += costs.encoded_len();
                        update.costs.push(costs);
                    }
                }
                Err(status) => update.failures.push(self.questions.failed(id, &status)),
            }
            if bytes > FULL_BYTES || self.last_sent.elapsed() > BEAT_INTERVAL / 2 {
                bytes = 0;
                // A sign of life: it does not cover messages that are not answered yet.
                update.through = self.sent_through;
                if !self.send(mem::take(&mut update)).await {
                    return false;
                }
            }
        }
        update.through = self.questions.through;
        let is_news = update.through > self.sent_through || !update.costs.is_empty();
        if !is_news && update.failures.is_empty() && !is_beat {
            return true;
        }
        self.sent_through = update.through;
        self.send(update).await
    }

    async fn send(&mut self, update: wire::CostUpdate) -> bool {
        self.last_sent = Instant::now();
        self.out.send(Ok(update)).await.is_ok()
    }

    async fn ask(&self, request: CostRequest) -> Result<CostAnswer, Status> {
        let request = CostRequest {
            deadline: Some(Instant::now() + DEADLINE),
            ..request
        };
        let answer = async {
            let answering = self.service.provider.endpoint_cost(request);
            let answered = timeout(ANSWER_TIMEOUT, answering).await;
            let late =
                |_| Status::deadline_exceeded(format!("no answer within {ANSWER_TIMEOUT:?}"));
            answered.map_err(late)?.map_err(Status::from)
        };
        self.service.gate.pass("WatchCosts", answer).await
    }
}
