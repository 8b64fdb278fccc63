//! Reviews tokens with the TokenReview API of the API server.

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use tautline_runtime::error_text::error_text;

use crate::tokens::{NODE_EXTRA, Review, Reviewed};

/// Returns a [`Review`] that asks the API server about tokens for an audience.
pub fn review(client: Client, audience: &'static str) -> Review {
    let api: Api<TokenReview> = Api::all(client);
    Arc::new(move |token| {
        let api = api.clone();
        Box::pin(async move {
            let spec = TokenReviewSpec {
                audiences: Some(vec![audience.to_owned()]),
                token,
            };
            let review = TokenReview {
                spec,
                ..TokenReview::default()
            };
            let answer = api.create(&PostParams::default(), &review).await;
            let answer = answer.map_err(|e| error_text(&e))?;
            Ok(reviewed(answer))
        })
    })
}

fn reviewed(answer: TokenReview) -> Reviewed {
    let status = answer.status.unwrap_or_default();
    let user = status.user.unwrap_or_default();
    let node = user.extra.and_then(|mut extra| extra.remove(NODE_EXTRA));
    Reviewed {
        authenticated: status.authenticated.unwrap_or_default(),
        audiences: status.audiences.unwrap_or_default(),
        user: user.username.unwrap_or_default(),
        node: node.and_then(|names| names.into_iter().next()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};

    use super::*;

    const AUDIENCE: &str = "tautline-latency";

    #[test]
    fn review_names_the_node_of_a_bound_token() {
        let user = UserInfo {
            username: Some("system:serviceaccount:ns:x".into()),
            extra: Some([(NODE_EXTRA.to_owned(), vec!["a".to_owned()])].into()),
            ..UserInfo::default()
        };
        let status = TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![AUDIENCE.into()]),
            user: Some(user),
            ..TokenReviewStatus::default()
        };
        let review = TokenReview {
            status: Some(status),
            ..TokenReview::default()
        };
        let found = reviewed(review);
        assert!(found.authenticated && found.audiences == [AUDIENCE]);
        assert_eq!(found.node.as_deref(), Some("a"));
        assert_eq!(found.user, "system:serviceaccount:ns:x");
        assert_eq!(reviewed(TokenReview::default()), Reviewed::default());
    }
}
