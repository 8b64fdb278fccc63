pub(crate) mod config_maps;
pub(crate) mod namespaces;
pub(crate) mod sources;
pub(crate) mod table;
