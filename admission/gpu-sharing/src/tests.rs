pub(crate) mod fixtures;
mod properties;
