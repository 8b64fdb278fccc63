//! Tables of round-trip times and of bandwidth, as people write them.

pub(crate) mod config_maps;
pub(crate) mod namespaces;
pub(crate) mod sources;
pub(crate) mod table;
