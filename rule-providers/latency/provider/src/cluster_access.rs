pub(crate) mod echo_key;
pub(crate) mod token_review;
