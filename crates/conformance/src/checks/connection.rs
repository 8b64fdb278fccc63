//! Checks of readiness, health and reflection.

use tautline_proto::ruleprovider::rule_provider_server::SERVICE_NAME;
use tokio::time::Instant;
use tonic::{Code, Response};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::{
    check::{Check, checks},
    failure::{Answered, CallFailure, Verdict, fail, skip},
    questions::PLAIN,
    session::{NOT_READY_PAUSE, Session},
};

checks! { "connection":
    "ready" ready;
    "health" health;
    "reflection" reflection;
}

pub(crate) const READY: &Check = &CHECKS[0];

async fn ready(session: &Session) -> Verdict {
    let ask = || session.ask(session.questions.plain());
    let starts = &[Code::Unavailable, Code::FailedPrecondition];
    let answer = session.retry(ask, starts).await;
    answer.answered(PLAIN.0).map(drop)
}

async fn health(session: &Session) -> Verdict {
    let limit = session.config.start_within;
    let end = Instant::now() + limit;
    loop {
        let mut client = HealthClient::new(session.channel.clone());
        let request = session.timed(HealthCheckRequest::default());
        let seen = match session.call(client.check(request)).await {
            Ok(answer) if answer.status() == ServingStatus::Serving => return Ok(()),
            Ok(answer) => answer.status().as_str_name().to_owned(),
            Err(failure) if failure.is(&[Code::Unimplemented]) => {
                return skip("not served; the readiness probe must be of another type than grpc");
            }
            Err(failure @ (CallFailure::Broken(_) | CallFailure::NotAsked)) => {
                return Err(failure).answered("Check of \"\"");
            }
            Err(failure) => failure.to_string(),
        };
        if Instant::now() >= end {
            return fail(format!("seen {seen} for {limit:?}; expected SERVING"));
        }
        tokio::time::sleep(NOT_READY_PAUSE).await;
    }
}

async fn reflection(session: &Session) -> Verdict {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(session.channel.clone());
    let call = async {
        let requests = futures::stream::iter([request]);
        let mut answers = client.server_reflection_info(requests).await?.into_inner();
        Ok(Response::new(answers.message().await?))
    };
    let answer = match session.call(call).await {
        Err(failure) if failure.is(&[Code::Unimplemented]) => {
            return skip("not served; tools such as grpcurl then need the proto file");
        }
        answer => answer.answered("the list of services")?,
    };
    let answer = answer.and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        return fail("seen no list of services");
    };
    let names: Vec<&str> = list.service.iter().map(|s| s.name.as_str()).collect();
    if names.contains(&SERVICE_NAME) {
        return Ok(());
    }
    let seen = names.join(", ");
    fail(format!("seen {seen}; expected {SERVICE_NAME}"))
}
