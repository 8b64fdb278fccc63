//! Refreshes answers in use before they end, so that the next pod of the shape does not wait.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use tautline_proto::endpoint_cost::put_known_version;
use tokio::time::Instant;

use crate::{
    CallError,
    cache::{Key, RefreshPlan},
    call::{EndpointChoice, Endpoints},
    client::ProviderClient,
    codec::{RawQuestion, encode_nodes},
    status::LastCall,
};

impl ProviderClient {
    /// The request is for any pod. After a failure the next pod requests the answer itself.
    pub(crate) fn schedule_refresh(
        &self,
        endpoints: Endpoints,
        key: Key,
        rule: Arc<str>,
        due: Instant,
    ) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            let Some(again) = this.cache().refresh_plan(&key, due) else {
                return;
            };
            let begun = Instant::now();
            let renewed = this.refresh(endpoints, &key, again, begun).await;
            let outcome = match &renewed {
                Ok(()) => "OK",
                Err(error) => error.code(),
            };
            let provider = &key.provider;
            this.metrics()
                .refreshed(&rule, provider, outcome, begun.elapsed());
            let last = LastCall {
                at: SystemTime::now(),
                took: begun.elapsed(),
                deadline: this.config().deadline,
                outcome,
                // Details are for the log: the Service may be a tenant's.
                error: None,
            };
            this.last_calls().set(&rule, provider, last);
            if let Err(error) = renewed {
                tracing::debug!(%rule, %provider, %error, "answer not refreshed");
            }
        });
    }

    async fn refresh(
        &self,
        endpoints: Endpoints,
        key: &Key,
        again: RefreshPlan,
        begun: Instant,
    ) -> Result<(), CallError> {
        let limit = self.config().deadline;
        let by = (limit, begun + limit);
        let head = &key.question;
        match again {
            RefreshPlan::Lines(questions) => {
                for nodes in questions {
                    let question = RawQuestion {
                        head: head.clone(),
                        nodes: encode_nodes(&nodes),
                    };
                    let begun = Instant::now();
                    let answering = self.endpoint_cost(
                        endpoints.clone(),
                        question,
                        EndpointChoice::RoundRobin,
                        by,
                    );
                    let (answer, by) = answering.await?;
                    let answer = answer.read(&nodes)?;
                    self.cache()
                        .insert(key.clone(), &nodes, &answer, &by.address, begun);
                }
            }
            RefreshPlan::Changes(known) => {
                let mut head = head.to_vec();
                put_known_version(known.version, &mut head);
                let question = RawQuestion {
                    head: head.into(),
                    nodes: Bytes::new(),
                };
                let first = EndpointChoice::Address(&known.endpoint);
                let (answer, _) = self.endpoint_cost(endpoints, question, first, by).await?;
                let none = Default::default();
                self.cache()
                    .apply_changes(key, &known, &answer, &none, begun)?;
            }
        }
        Ok(())
    }
}
