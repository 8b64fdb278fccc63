//! Reads the use of the cards, which the agents on the nodes report to the provider.

use tautline_core::trust::OWN_NAMESPACE;
use tautline_gpu_placement::inventory::CardPool;
use tautline_gpu_slice::{Inspection, report::Uses};
use tautline_runtime::error_text::error_text;

use super::source::SourceArgs;
use crate::{replicas::ReplicaArgs, scope};

const PATH: &str = "/gpu/use";
const PROVIDER: &str = "tautline-gpu-slice";

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct UseArgs {
    /// Admin port of one gpu-slice provider, for what is used, instead of all replicas
    #[arg(long, env = "TAUTLINE_GPU_SLICE")]
    url: Option<String>,
    /// Tautline's namespace, where the provider runs
    #[arg(long, value_name = "NS", default_value = OWN_NAMESPACE, value_parser = scope::name)]
    tautline_namespace: String,
}

impl UseArgs {
    /// Reads the use of the cards. It is empty, with a warning, if the provider cannot be read;
    /// without agents the provider is not asked.
    pub(crate) async fn read(&self, source: &SourceArgs, inspection: &Inspection) -> Uses {
        let nodes = inspection.nodes();
        let mut pools = nodes.iter().flat_map(|n| &n.inventory.pools);
        let url = self.url.as_deref().filter(|url| !url.is_empty());
        if url.is_none() && (source.is_manifests() || !pools.any(CardPool::has_agent)) {
            return Uses::default();
        }
        let replicas = ReplicaArgs {
            tautline_namespace: self.tautline_namespace.clone(),
            cluster: source.cluster.clone(),
        };
        let uses = replicas.get(url, &[PROVIDER], PATH).await.and_then(|all| {
            let answers = all.iter().map(|a| (&*a.from, a.status.as_u16(), &*a.body));
            Ok(Uses::merge(answers)?)
        });
        let uses = uses.unwrap_or_else(|error| {
            let error = error_text(error.as_ref());
            note!("warning: {error}; how much of the cards is used is not known");
            Uses::default()
        });
        for from in uses.without_page() {
            note!("warning: {from} does not exist; is it a provider of this version?");
        }
        uses
    }
}
