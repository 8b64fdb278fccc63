//! The caller's deadline, from gRPC's `grpc-timeout`: at most eight digits and a unit.
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

pub(crate) fn from_metadata(metadata: &MetadataMap) -> Option<Instant> {
    let timeout = parse(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    Instant::now().checked_add(timeout)
}

fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let digits = text.strip_suffix(unit)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3_600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tautline_proto::ruleprovider::EndpointCostRequest;
    use tonic::Request;

    use super::*;
    use crate::{
        CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
        testkit,
    };

    #[test]
    fn parse_reads_grpc_timeouts() {
        assert_eq!(parse("500m"), Some(Duration::from_millis(500)));
        assert_eq!(parse("1S"), Some(Duration::from_secs(1)));
        assert_eq!(
            parse("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3_600))
        );
        for text in ["", "m", "5", "123456789m", "-1S", "1s", "1 S", "µ"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// The cost is the remaining time in milliseconds.
    struct RemainingTime;

    impl RuleProvider for RemainingTime {
        async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
            let left = request
                .deadline
                .map(|d| d.saturating_duration_since(Instant::now()));
            let millis = left.map_or(-1, |l| i64::try_from(l.as_millis()).unwrap_or(i64::MAX));
            Ok([("left".to_owned(), millis)].into_iter().collect())
        }
        async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
            Ok(Evaluation::compliant(""))
        }
    }

    #[tokio::test]
    async fn requests_carry_the_deadline() {
        let running = testkit::start(RemainingTime).await.unwrap();
        let left = async |timeout: Option<Duration>| {
            let mut request = Request::new(EndpointCostRequest::default());
            if let Some(timeout) = timeout {
                request.set_timeout(timeout);
            }
            let answer = running.endpoint_cost_with(request).await.unwrap();
            answer.node_and_cost[0].cost
        };
        assert_eq!(left(None).await, -1);
        let millis = left(Some(Duration::from_secs(90))).await;
        assert!((30_000..=90_000).contains(&millis), "{millis}");
        running.stop().await;
    }

    proptest! {
        #[test]
        fn parse_accepts_any_text(text in ".{0,12}|[0-9]{0,10}[HMSmun]") { let _ = parse(&text); }
    }
}
