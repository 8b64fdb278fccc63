//! The reconciler driven by events alone: no server, no client, no clock.

mod bindings;
mod cluster;
mod evaluation;
mod fairness;
mod fixture;
mod leadership;
mod offer_statuses;
mod other_clusters;
mod ownership;
mod properties;
mod statuses;
mod write_failures;
