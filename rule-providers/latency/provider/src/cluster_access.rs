pub(crate) mod echo_key;
